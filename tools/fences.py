"""Types the documentation: every python fence of the pages, and of docstrings, as a file under mypy --strict.

`python tools/fences.py` looks at all of them, `python tools/fences.py docs/concepts.md src/overt/agent.py` at these.
One run of mypy checks them, under the settings of pyproject.toml and with the cache of the gate `mypy`.

Names are shared down a page, so a fence becomes a module that imports the names it uses from the last fence above that
bound them. A fence that begins with `# name.py` is a module of that name, for its page only. Each keeps the line
numbers of its page, so what mypy says is said of the page.

Refused as well: fences in a language nobody knows here (```py would run nowhere), programs in a fence that is only
shown, in a quote, in HTML or only indented, and comments that switch a checker off.
"""

from __future__ import annotations

import ast
import doctest
import io
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUN = ("python", "console")
"""What is executed."""
SHOWN = ("text", "go", "html", "http", "javascript", "json", "mermaid", "sql", "toml", "yaml")
"""What is only shown."""

_OPEN = re.compile(r"^(?P<indent>[ \t]*)(?P<ticks>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$")
_MARK = re.compile(r"<!--\s*not run(?P<untyped> or typed)?:(?P<reason>(?:(?!-->).)*)-->\s*\Z", re.DOTALL)
_ELSEWHERE = (
    (
        r"^[ \t]*(?:(?:[-*+]|\d+[.)])[ \t]+|>[ \t]?)+(?:`{3,}|~{3,})",
        "a fence begins on a line of its own, outside of quotes",
    ),
    (r"^[ \t>]*<(?:pre|code|textarea)\b", "what is code stands in a fence"),
    (r"<!--(?!(?:(?!-->|<!--).)*-->)", "a comment that nothing closes, or that has a fence in it"),
    (r"\A\ufeff", "a mark of the byte order: save it without one"),
)
_PROGRAM = re.compile(
    r"^[ \t]*(?:#> |>>> |from [\w.]+ import |import [\w.]+$|(?:async )?def \w+\(|class \w+.*:$|\$ (?:python|overt) )",
    re.MULTILINE,
)
_INDENTED = re.compile(r"(?: {4}|\t)\S")
_SWITCH = re.compile(r"#\s*(type:\s*ignore|mypy:|pyright:|basedpyright:)")
_TOLD = re.compile(r"^(?P<file>.+?):(?P<line>\d+): (?P<what>(?:error|note|warning): .*)$")


@dataclass(frozen=True, kw_only=True)
class Fence:
    """A fence, or the `>>>` lines of a docstring that follow on each other."""

    language: str
    source: str
    """Without what it is indented by."""
    line: int
    """Of the first line of `source`, from 1."""
    start: int
    end: int
    """Characters of the file that it takes."""
    unrun: str | None = None
    """Why it is not run, where its page says so."""
    untyped: bool = False
    wanted: str = ""
    """What `>>>` lines give."""

    @property
    def file(self) -> str | None:
        """The module that it is, where it begins with `# name.py`."""
        named = re.match(r"# (\w+)\.py\n", self.source)
        return named[1] if named and self.language == "python" else None


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page, or one docstring: what shares names."""

    path: Path
    package: str
    fences: list[Fence] = field(default_factory=list)

    @property
    def typed(self) -> list[Fence]:
        return [fence for fence in self.fences if fence.language in ("python", "pycon") and not fence.untyped]


def scan(text: str) -> list[Fence]:
    """The fences of a text in order."""
    found: list[Fence] = []
    place, opened, body = 0, None, list[str]()
    start = first = 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if opened is None:
            opened = _OPEN.match(line.rstrip("\n"))
            start, first, body = place, number + 1, []
        elif re.fullmatch(rf"[ \t]*{opened['ticks'][0]}{{{len(opened['ticks'])},}}\s*", line):
            mark = _MARK.search(text, 0, start)
            words = opened["info"].split()
            found.append(
                Fence(
                    language=words[0] if words else "",
                    source="".join(one.removeprefix(opened["indent"]) for one in body),
                    line=first,
                    start=start,
                    end=place + len(line),
                    unrun=mark["reason"].strip() if mark else None,
                    untyped=bool(mark and mark["untyped"]),
                )
            )
            opened = None
        else:
            body.append(line)
        place += len(line)
    if opened is not None:
        raise ValueError(f"line {first - 1}: a fence that nothing closes")
    return found


def page(path: Path) -> Page:
    """A page of Markdown."""
    try:
        return Page(path=path, package=_package(path), fences=scan(path.read_text("utf-8")))
    except ValueError as error:  # of UTF-8, too
        raise ValueError(f"{shown(path)}: {error}") from error


def docstrings(path: Path) -> Iterator[Page]:
    """The docstrings of a module that have examples."""
    text = path.read_text("utf-8")
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for name, node in _documented(ast.parse(text), ""):
        first, last = node.lineno, node.end_lineno or node.lineno
        raw = text[starts[first - 1] : starts[last]].rstrip().rstrip("\"'")
        fences = [
            replace(
                fence,
                line=fence.line + first - 1,
                start=fence.start + starts[first - 1],
                end=fence.end + starts[first - 1],
            )
            for fence in sorted([*scan(raw), *_prompts(raw)], key=lambda fence: fence.start)
        ]
        if fences:
            yield Page(
                path=path,
                package=_package(path) + (f"__{name.replace('.', '_')}" if name else ""),
                fences=fences,
            )


def _documented(node: ast.AST, name: str) -> Iterator[tuple[str, ast.Constant]]:
    body = getattr(node, "body", None)
    if not isinstance(body, list):
        return
    for number, part in enumerate(body):
        # An attribute's stands below it.
        if (
            isinstance(part, ast.Expr)
            and isinstance(part.value, ast.Constant)
            and type(part.value.value) is str
        ):
            yield f"{name}.{number}".lstrip(".") if number else name, part.value
        elif isinstance(part, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _documented(part, f"{name}.{part.name}".lstrip("."))


def _prompts(raw: str) -> Iterator[Fence]:
    lines = raw.splitlines(keepends=True)
    for example in doctest.DocTestParser().get_examples(raw):
        start = sum(map(len, lines[: example.lineno]))
        yield Fence(
            language="pycon",
            source=example.source,
            wanted=example.want,
            line=example.lineno + 1,
            start=start,
            end=start + sum(map(len, lines[example.lineno : example.lineno + example.source.count("\n")])),
        )


def _package(path: Path) -> str:
    inside = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path(path.name)
    return re.sub(r"\W", "_", str(inside.with_suffix("")))


def everything() -> list[Page]:
    """What the documentation consists of: the pages, the README, CONTRIBUTING and the docstrings."""
    return [
        *(page(path) for path in markdown()),
        *(found for path in sorted((ROOT / "src" / "overt").rglob("*.py")) for found in docstrings(path)),
    ]


def markdown() -> list[Path]:
    """The pages; a decision only if it has something to run."""
    return [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
        *(
            path
            for path in sorted((ROOT / "docs").rglob("*.md"))
            if path.parent.name != "decisions" or re.search(r"^```", path.read_text("utf-8"), re.MULTILINE)
        ),
    ]


# ---------------------------------------------------------------- what is refused as it stands


def faults(found: Page) -> Iterator[tuple[int, str]]:
    """Line and what is wrong there, before anything is run or typed."""
    for fence in found.fences:
        if fence.language not in (*RUN, *SHOWN, "pycon"):
            told = (
                f"'{fence.language}' is no language of a fence"
                if fence.language
                else "a fence has a language"
            )
            yield fence.line - 1, f"{told}: one of {', '.join((*RUN, *SHOWN))}"
        if fence.unrun == "":
            yield fence.line - 1, "a fence that is not run says why"
        if fence.unrun is not None and fence.language not in RUN:
            yield fence.line - 1, "only what would be run says that it is not"
        if fence.language in ("python", "pycon"):
            for line, comment in _comments(fence.source):
                if _SWITCH.match(comment):
                    yield fence.line + line - 1, f"'{comment}' switches a checker off"


def unread(text: str) -> Iterator[tuple[int, str]]:
    """Line and what is wrong there: what readers see as code, or do not see, and `scan` takes for prose."""
    bare = text
    try:
        fences = scan(text)
    except ValueError as error:
        yield int(re.findall(r"\d+", str(error))[0]), "a fence that nothing closes"
        fences = []
    for fence in fences:
        bare = bare[: fence.start] + re.sub(r"[^\n]", "`", text[fence.start : fence.end]) + bare[fence.end :]
        if fence.language == "text" and (_PROGRAM.search(fence.source) or _calls(fence.source)):
            yield (
                fence.line - 1,
                "a program, or what one prints, that would not be run: it is python, or console",
            )
    for pattern, told in _ELSEWHERE:
        # A comment ends before the next fence.
        for place in re.finditer(pattern.replace("-->|", "-->|```|"), bare, re.MULTILINE | re.DOTALL):
            yield bare.count("\n", 0, place.start()) + 1, told
    inside = False  # a list, an admonition or a `:::`, whose text is indented
    for number, (above, line) in enumerate(pairwise(["", *bare.split("\n")]), 1):
        if line.strip() and not line[0].isspace():
            inside = re.match(r"[-*+] |\d+[.)] |!!!|\?\?\?|===|:::|`", line) is not None
        elif _INDENTED.match(line) and not inside and not above.strip():
            yield number, "what is code stands in a fence, and is not only indented"


def _calls(source: str) -> bool:
    """Whether it reads as Python that does something."""
    try:
        return any(isinstance(node, (ast.Call, ast.Await)) for node in ast.walk(ast.parse(source)))
    except SyntaxError:
        return False


def _comments(source: str) -> Iterator[tuple[int, str]]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    except (tokenize.TokenError, SyntaxError):
        return  # mypy says where


# ---------------------------------------------------------------- fences as modules


def modules(found: Page) -> dict[str, tuple[Fence, str]]:
    """The modules of a page by name, each with its fence and its text."""
    files = {fence.file for fence in found.typed if fence.file}
    known: dict[str, str] = {}
    made: dict[str, tuple[Fence, str]] = {}
    for number, fence in enumerate(found.typed, 1):
        name = fence.file or f"_{number}"
        source = fence.source
        try:
            tree = ast.parse(source)
        except SyntaxError:
            made[name] = fence, "\n" * (fence.line - 1) + source
            continue
        if files:
            source = _in_package(source, tree, files, found.package)
            tree = ast.parse(source)
        needed = [] if fence.file else sorted(used(tree) & known.keys())
        head = "; ".join(known[one] for one in needed)
        made[name] = fence, head + "\n" * (fence.line - 1) + source
        if fence.file:
            known[name] = f"import {found.package}.{name} as {name}"
        else:
            known |= {
                one: how or f"from {found.package}.{name} import {one}" for one, how in bound(tree).items()
            }
    return made


def _in_package(source: str, tree: ast.Module, files: set[str], package: str) -> str:
    """The text with its imports of the page's own files saying where those are."""
    lines = source.encode().splitlines(keepends=True)
    places: list[tuple[int, int, int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in files:
            places.append(
                (node.lineno, node.col_offset, len(f"from {node.module}"), f"from {package}.{node.module}")
            )
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in files:
                    new = f"{package}.{alias.name}" + ("" if alias.asname else f" as {alias.name}")
                    places.append((alias.lineno, alias.col_offset, len(alias.name), new))
    for line, column, length, new in sorted(places, reverse=True):
        old = lines[line - 1]
        lines[line - 1] = old[:column] + new.encode() + old[column + length :]
    return b"".join(lines).decode()


def bound(tree: ast.AST) -> dict[str, str | None]:
    """The names that a module binds; for an import, the statement that does so too."""
    names: dict[str, str | None] = {}
    for node in _here(tree):
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    said = f" as {alias.asname}" if alias.asname else ""
                    names[alias.asname or alias.name.partition(".")[0]] = f"import {alias.name}{said}"
            case ast.ImportFrom(module=module, names=aliases):
                for alias in aliases:
                    said = f" as {alias.asname}" if alias.asname else ""
                    names[alias.asname or alias.name] = f"from {module} import {alias.name}{said}"
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names[name] = None
            case (
                ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name))
            ):
                names[name] = None
            case ast.Name(id=name, ctx=ast.Store()):
                names[name] = None
            case _:
                pass
    return names


def used(tree: ast.Module) -> set[str]:
    """The names that a module takes from above: any that it reads and does not itself bind beforehand."""
    own: set[str] = set()
    above: set[str] = set()
    for statement in tree.body:
        above |= {name for name in _read(_here(statement)) if name not in own}
        own |= bound(ast.Module(body=[statement], type_ignores=[])).keys()
    # A function reads what is there when it is called.
    return above | (_read(ast.walk(tree)) - own)


def _read(nodes: Iterator[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.AugAssign(target=ast.Name(id=name)):
                names.add(name)
            case (
                ast.arg(annotation=ast.Constant(value=str(name)))
                | ast.AnnAssign(annotation=ast.Constant(value=str(name)))
            ):
                names.add(name)
            case _:
                pass
    return names


def _here(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below, without those inside of functions and classes."""
    for child in ast.iter_child_nodes(node) if isinstance(node, ast.Module) else [node]:
        yield child
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for outside in (*child.decorator_list, *getattr(child, "bases", [])):
                yield from _here(outside)
            if not isinstance(child, ast.ClassDef):
                for default in (*child.args.defaults, *filter(None, child.args.kw_defaults)):
                    yield from _here(default)
        elif not isinstance(child, ast.Lambda):
            for below in ast.iter_child_nodes(child):
                yield from _here(below)


# ---------------------------------------------------------------- mypy


def check_types(pages: list[Page], folder: Path, *, cache: Path, whole: bool) -> list[str]:
    """What mypy says of these pages, by page and line.

    Their modules stay in `folder`, for mypy's cache; with `whole`, and no others.
    """
    wanted: dict[Path, str] = {}
    origin: dict[str, tuple[Page, Fence]] = {}
    for found in pages:
        for name, (fence, text) in modules(found).items():
            path = folder / found.package / f"{name}.py"
            if path in wanted:
                raise ValueError(
                    f"{found.path}: another page, or another fence, is {found.package}.{name} too"
                )
            wanted[path] = text
            origin[os.path.relpath(path, ROOT)] = found, fence
    packages = {path.parent for path in wanted}
    for stale in [path for path in folder.glob("*/*.py") if path not in wanted]:
        # Of pages that nobody asked about, nothing is known.
        if whole or stale.parent in packages:
            stale.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:  # mypy looks at times first
            path.write_text(text, encoding="utf-8")
    if not wanted:
        return []
    options = ["--config-file", "pyproject.toml", "--cache-dir", str(cache)]
    options += ["--no-error-summary", "--no-pretty", "--show-error-codes"]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *sorted(os.path.relpath(path, ROOT) for path in packages)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    told = [_said(line, origin) for line in ran.stdout.splitlines()]
    return told + ran.stderr.splitlines() if ran.returncode else []


def _said(line: str, origin: dict[str, tuple[Page, Fence]]) -> str:
    found = _TOLD.match(line)
    if not found or found["file"] not in origin:
        return line
    of, fence = origin[found["file"]]
    # What comes before the fence is the line of imports that was put there.
    return f"{shown(of.path)}:{max(int(found['line']), fence.line)}: " + re.sub(
        rf"\b{of.package}\.(?:_\d+\.)?", "", found["what"]
    )


def shown(path: Path) -> str:
    """A path as a message has it."""
    return os.path.relpath(path, ROOT) if path.is_relative_to(ROOT) else path.name


def main(arguments: list[str]) -> int:
    """Check what is named, or everything, and say what is wrong."""
    named = [Path(argument).resolve() for argument in arguments]
    pages = everything()
    if named:
        pages = [found for found in pages if found.path in named]
        if missing := set(named) - {found.path for found in pages}:
            print(f"no such page, or nothing typed in it: {', '.join(map(str, sorted(missing)))}")
            return 2
    wrong = [f"{shown(found.path)}:{line}: {what}" for found in pages for line, what in faults(found)]
    written = [found.path for found in pages if found.path.suffix == ".md"]
    wrong += [
        f"{shown(path)}:{line}: {what}" for path in written for line, what in unread(path.read_text("utf-8"))
    ]
    cache = ROOT / ".mypy_cache"
    wrong += check_types(pages, cache / "fences", cache=cache, whole=not named)
    print("\n".join([*wrong, f"{sum(len(found.typed) for found in pages)} fences, {len(wrong)} messages"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
