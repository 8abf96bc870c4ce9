"""House rules that no linter knows."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
import sniffio
from pydantic import BaseModel
from typing_extensions import is_typeddict

import overt

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "overt"
CEILING = 600
# Spelled so that this file does not contain what it looks for.
MACHINE_PATHS = re.compile(rb"/" + rb"work/|/" + rb"root/\.|/" + rb"home/\w+/")
BUILT = {".git", ".venv", "site", "build", "dist", "__pycache__"}


def project_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        names = [name for name in listed.stdout.decode().split("\0") if name]
        return [ROOT / name for name in names if (ROOT / name).is_file()]
    return [p for p in ROOT.rglob("*") if p.is_file() and not BUILT & set(p.relative_to(ROOT).parts)]


def public_modules() -> list[str]:
    found = ("overt", *(module.name for module in pkgutil.walk_packages(overt.__path__, "overt.")))
    return [name for name in found if not any(part.startswith("_") for part in name.split("."))]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_file_is_below_the_ceiling(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= CEILING, f"{path.relative_to(ROOT)} has {lines} lines: it has two topics"


def test_no_file_names_a_path_of_one_machine() -> None:
    files = project_files()
    assert len(files) > 20
    found = [
        f"{path.relative_to(ROOT)}: {match.group().decode()}"
        for path in files
        if (match := MACHINE_PATHS.search(path.read_bytes()))
    ]
    assert not found


@pytest.mark.parametrize("name", public_modules())
def test_public_module_has_a_tuple_all_of_names_it_has(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__
    if not Path(module.__file__).read_bytes():
        return  # an empty package has nothing to list
    names = getattr(module, "__all__", None)
    assert isinstance(names, tuple), f"{name} needs a tuple __all__"
    assert len(set(names)) == len(names)
    assert not [n for n in names if not hasattr(module, n)]


async def test_async_tests_run_on_both_loops(anyio_backend_name: str) -> None:
    await anyio.lowlevel.checkpoint()
    assert sniffio.current_async_library() == anyio_backend_name


# ------------------------------------------------------------------ what users see

DOORS = (
    "overt",
    "overt.errors",
    "overt.events",
    "overt.models",
    "overt.operations",
    "overt.stores",
    "overt.testing",
)

# Past the first parameter everything is named, but where two belong together as subject and object do.
TWO_POSITIONAL = {
    "overt.Loop.open": "as Runtime.open",
    "overt.Runtime.open": "agent and run id, as one opens a file with path and mode",
    "overt.Runtime.post": "handle and item",
    "overt.Runtime.run_turn": "handle and prompt",
    "overt.Runtime.spawn": "parent and agent",
    "overt.Runtime.tool_result": "handle and call id",
    "overt.stores.EncryptedStore": "the store and its key",
    "overt.Runtime.wake": "handle and prompt",
    "overt.ToolContext.once": "label and function",
    "overt.stores.Record": "position and count; one is made for every append",
    "overt.models.register": "provider and factory",
    "overt.operations.check": "agent and store: who is to go on, and with what",
    "overt.operations.follow": "store and run id",
    "overt.testing.raw_call": "tool and text, as `call` takes tool and arguments",
}
# A store's methods take the run and its records; every implementation follows.
STORES = (
    "Store",
    "ImmediateStore",
    "StoreWrapper",
    "MemoryStore",
    "SQLiteStore",
    "PostgresStore",
    "EncryptedStore",
    "CrashingStore",
)
TWO_POSITIONAL |= {
    f"{door}.{store}.{method}": "run and records"
    for door in ("overt", "overt.stores", "overt.testing")
    for store in STORES
    for method in ("create", "append", "append_now")
}

# Places where the type is the user's own, and neither `object` nor a type variable would let correct programs pass.
ANY_OF_USERS = {
    "overt.Agent": "team takes agents of any deps and output",
    "overt.Agent.as_tool": "the implementation; its overloads say the type",
    "overt.Agent.with_team": "as the constructor",
    "overt.AgentTool": "an agent without deps is a tool for any",
    "overt.AgentTool.agent": "as the constructor",
    "overt.BeforeLLM": "tools of whatever deps, to be handed on in an LLMOverride",
    "overt.Completion": "a verifier of any output, as long as its agent has it",
    "overt.LLMOverride": "tools of whatever deps",
    "overt.Loop.resume": "as Runtime.resume",
    "overt.Options": "verify_answer takes answers of any type",
    "overt.Runtime.resume": "answers to any question, of whatever type",
    "overt.Runtime.resume_sync": "as resume",
    "overt.Runtime.stream": "as resume",
    "overt.Tool.bind": "arguments of a function whose types are known to it alone",
    "overt.ToolContext": "answers of any type, in the order of the questions",
    "overt.ToolContext.answer": "the latest answer, of whatever type",
    "overt.ToolContext.ask": "the implementation; its overloads say the type",
    "overt.all_todos_done": "the work of any agent",
    "overt.require_approval": "arguments are compared, which JSON values that may be anything cannot be",
    "overt.output_is": "the work of any agent",
    "overt.events.ResultReady": "the result of any agent: the union of events has no parameter",
    "overt.tool": "the implementation; its overloads say the type",
}


def seen_by_users() -> Iterator[tuple[str, object]]:
    """Every public callable and property of the doors, once, under the name users call it by."""
    seen: set[int] = set()
    for door in DOORS:
        module = importlib.import_module(door)
        for name in module.__all__:
            found: object = getattr(module, name)
            home = str(getattr(found, "__module__", ""))
            if id(found) in seen or not home.startswith("overt") or not callable(found):
                continue
            seen.add(id(found))
            yield f"{door}.{name}", found
            if isinstance(found, type):
                for inner, member in members_of(found).items():
                    if not inner.startswith("_") and (callable(member) or isinstance(member, MEMBERS)):
                        yield f"{door}.{name}.{inner}", member


MEMBERS = (property, classmethod, staticmethod)


def members_of(cls: type) -> dict[str, object]:
    """What a class has of its own, and of bases users do not see."""
    found: dict[str, object] = {}
    for base in reversed(cls.__mro__):
        if base is cls or base.__module__.startswith("overt._"):
            found |= vars(base)
    return found


def signature_of(found: object) -> inspect.Signature | None:
    if isinstance(found, property):
        found = found.fget
    if isinstance(found, (classmethod, staticmethod)):
        found = found.__func__
    if isinstance(found, type):
        if issubclass(found, (BaseModel, Enum, BaseException)) and "__init__" not in vars(found):
            return None  # keywords only, by the base class
        if is_typeddict(found) or getattr(found, "_is_protocol", False):
            return None
        found = found.__init__  # type: ignore[misc]
    assert callable(found)
    return inspect.signature(found)


def test_users_name_every_argument_past_the_first() -> None:
    used: set[str] = set()
    wrong: list[str] = []
    for name, found in seen_by_users():
        signature = signature_of(found)
        if signature is None:
            continue
        positional = [
            parameter.name
            for parameter in signature.parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            and parameter.name not in ("self", "cls")
        ]
        if len(positional) > 1:
            used.add(name)
            if name not in TWO_POSITIONAL or len(positional) > 2:
                wrong.append(f"{name}({', '.join(positional)})")
    assert not wrong
    stale = {name for name in TWO_POSITIONAL if not name.rpartition(".")[0].endswith(STORES)} - used
    assert not stale, "these exceptions are no longer needed"


def test_users_meet_any_only_where_the_type_is_their_own() -> None:
    found_any: set[str] = set()
    for name, found in seen_by_users():
        signature = signature_of(found)
        said = "" if signature is None else str(signature)
        if isinstance(found, type):
            said += " ".join(str(kind) for kind in vars(found).get("__annotations__", {}).values())
        if re.search(r"\bAny\b", said):
            found_any.add(name)
    assert found_any == ANY_OF_USERS.keys()


def test_everything_users_see_says_what_it_is_for() -> None:
    silent = [
        name
        for name, found in seen_by_users()
        if not (found.__doc__ or "").strip()
        # Documented on `Store`.
        and not name.rpartition(".")[0].endswith(("MemoryStore", "SQLiteStore"))
    ]
    assert not silent


@pytest.mark.parametrize("name", public_modules())
def test_all_is_complete_and_in_order(name: str) -> None:
    """A package lists what it hands on; a module of its own what others of the package use of it."""
    module = importlib.import_module(name)
    listed: tuple[str, ...] = getattr(module, "__all__", ())
    kinds = [n for n in listed if n.isupper()], [n for n in listed if n[0].isupper() and not n.isupper()]
    ordered = [*sorted(kinds[0]), *sorted(kinds[1]), *sorted(n for n in listed if n[0].islower())]
    assert list(listed) == ordered
    if name in DOORS:
        own = [
            n
            for n, found in vars(module).items()
            if not n.startswith("_") and getattr(found, "__module__", "") == name
        ]
        assert set(own) <= set(listed)


def run_alone(code: str) -> str:
    """Run code in a process of its own, where nothing has been imported yet."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


HEAVY = (
    "asyncio",
    "sqlite3",
    "ssl",
    "openai",
    "psycopg",
    "httpx2",
    "anthropic",
    "starlette",
    "opentelemetry",
    "griffe",
    "docstring_parser",
    "jsonschema_rs",
    "trio",
    "pytest",
    "overt.runtime",
    "overt.driver",
    "overt.testing",
)


def test_importing_overt_loads_nothing_it_does_not_need_yet() -> None:
    loaded = run_alone("import sys, overt; print(*sys.modules)").split()
    assert "overt.agent" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_importing_the_kit_for_tests_needs_no_test_runner() -> None:
    loaded = run_alone("import sys, overt.testing; print(*sys.modules)").split()
    assert [name for name in ("pytest", "_pytest", "trio", "sqlite3", "openai") if name in loaded] == []


def test_no_model_is_built_while_overt_is_imported() -> None:
    built = run_alone(
        "import overt\n"
        "from pydantic import BaseModel\n"
        "from overt._frozen import Frozen\n"
        "print(*[c.__name__ for c in Frozen.__subclasses__() if c.__pydantic_complete__])"
    ).split()
    assert built == []


def test_the_rules_need_nothing_that_does_input_or_output() -> None:
    """The core runs where no event loop is installed."""
    run_alone(
        "import importlib, pkgutil, sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('anyio', 'trio', 'sniffio', 'openai', 'sqlite3', 'jsonschema_rs'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import overt.core\n"
        "for module in pkgutil.iter_modules(overt.core.__path__, 'overt.core.'):\n"
        "    importlib.import_module(module.name)\n"
        "assert 'overt.core.decide' in sys.modules\n"
    )
