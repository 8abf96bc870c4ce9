"""Writes what the documentation takes from the code: `gen_docs.py` writes it, `gen_docs.py check` compares.

A page has the generated text between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import cast

import griffe

# It is called as a file, too.
sys.path.insert(0, str(Path(__file__).parent.parent))

from tools import gen_vocabulary as vocabulary
from tools.site_names import homes, public_modules, public_names

from overt.core.lifecycle import TRANSITIONS, VERBS, Move, Reaction, diagram
from overt.result import State

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
MOVES = {
    Move.ADMIT: "a wake begins: the handle has a slot and something to do",
    Move.PARK: "every call of the batch is finished, has asked, or waits for a suspended child",
    Move.RESUME: "what the wake waited for is there: answers to its own questions, or its children's results",
    Move.SETTLE: "the wake ends, with one of the statuses of a result",
    Move.REOPEN: "`recover` or `extend` goes on with a wake that failed, was cut off or met a limit",
    Move.CLOSE: "nothing more is accepted; the handle stays readable",
}
REACTIONS = {
    Reaction.TAKEN: "taken",
    Reaction.IGNORED: "nothing happens",
    Reaction.REFUSED: "refused, as a value",
    Reaction.RAISES: "raises",
}


@cache
def names() -> dict[str, griffe.Object]:
    """Return every public name and what it names, as the source has it."""
    loader = griffe.GriffeLoader(search_paths=[ROOT / "src"], allow_inspection=False)
    package = cast("griffe.Module", loader.load("overt"))
    loader.resolve_aliases(implicit=True, external=False)
    return public_names(package)


def first_sentence(thing: griffe.Object) -> str:
    """Return what a docstring begins with, for a cell of a table; fails where there is none."""
    if thing.docstring is None:
        raise ValueError(f"{thing.path} has no docstring")
    return vocabulary.first_sentence(thing.docstring.value)


# ------------------------------------------------------------------ the life of a handle


def lifecycle() -> str:
    """Return the states, the moves between them and what each verb meets."""
    moves = [
        f"| `{move}` | {', '.join(f'{a} → {b}' for (a, m), b in TRANSITIONS.items() if m is move)} | {told} |"
        for move, told in MOVES.items()
    ]
    verbs = list(dict.fromkeys(verb for _, verb in VERBS))
    rows = [
        f"| `{verb}` | " + " | ".join(REACTIONS[VERBS[state, verb]] for state in State) + " |"
        for verb in verbs
    ]
    return "\n".join(
        [
            "```mermaid",
            diagram(),
            "```",
            "",
            "| move | from → to | when |",
            "| --- | --- | --- |",
            *moves,
            "",
            "| verb of the host | " + " | ".join(State) + " |",
            "| --- |" + " --- |" * len(State),
            *rows,
        ]
    )


# ------------------------------------------------------------------ public names


def places() -> dict[str, str]:
    """Return on which page of the reference each thing is described, by the name it stands under there."""
    found: dict[str, str] = {}
    for page in sorted(REFERENCE.glob("*.md")):
        for name in re.findall(r"^::: (\S+)$", page.read_text("utf-8"), re.MULTILINE):
            if name in found:
                raise ValueError(f"{name} is described on {found[name]} and on {page.name}")
            found[name] = page.name
    return found


def public() -> str:
    """Return a table a module of its public names; what has two names has its line where it is described."""
    things, at, where = names(), homes(names()), places()
    lines: list[str] = []
    for module in public_modules():
        own = {name: thing for name, thing in things.items() if name.rpartition(".")[0] == module}
        lines += [f"## {module} {{ #{module} }}", "", "| name | what it is |", "| --- | --- |"]
        for name, thing in sorted(own.items(), key=lambda item: (item[0].lower(), item[0])):
            home = at[thing.path]
            if home not in where:
                raise ValueError(f"{home} is on no page of the reference")
            shown = f"[`{name.rpartition('.')[2]}`]({where[home]}#{home})"
            lines.append(f"| {shown} | {first_sentence(thing) if home == name else f'`{home}`'} |")
        lines.append("")
    return "\n".join(lines).rstrip()


# ------------------------------------------------------------------ events


def events() -> str:
    """Return the kinds of events: what each is called, when it is told and what it carries."""
    module = {name: thing for name, thing in names().items() if name.startswith("overt.events.")}
    union = cast("griffe.Attribute", module["overt.events.Event"])
    order = re.findall(r"\b[A-Z]\w+\b", str(union.value).partition("Field(")[0])
    classes = [name for name in order if f"overt.events.{name}" in module]
    if len(classes) != len(module) - 1:
        raise ValueError("an event is not in the union")
    lines = ["| `kind` | class | told when | carries |", "| --- | --- | --- | --- |"]
    for name in classes:
        path = f"overt.events.{name}"
        fields = [member for member in module[path].members.values() if member.is_attribute]
        kind = next(
            str(cast("griffe.Attribute", field).value).strip("'\"")
            for field in fields
            if field.name == "kind"
        )
        own = ", ".join(f"[`{field.name}`](#{path}.{field.name})" for field in fields if field.name != "kind")
        told = vocabulary.cell(cast("griffe.Docstring", module[path].docstring).value.partition("\n\n")[0])
        lines.append(f"| `{kind}` | [`{name}`](#{path}) | {told} | {own} |")
    return "\n".join(lines)


# ------------------------------------------------------------------ versions


def versions() -> str:
    """Return what VERSIONING.md says, without its heading: readers of the site need it too."""
    return (ROOT / "VERSIONING.md").read_text("utf-8").partition("\n\n")[2].rstrip()


# ------------------------------------------------------------------ pages

PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "reference/index.md": {"names": public},
    "reference/events.md": {"events": events},
    "reference/states.md": {"lifecycle": lifecycle},
    "reference/vocabulary.md": vocabulary.PARTS,
    "versions.md": {"versions": versions},
}
"""What is generated, by page and name of the part."""


def render(page: str, text: str) -> str:
    """Return the text of a page with its generated parts as the code has them now."""
    for name, made in PARTS[page].items():
        head, found, rest = text.partition(f"<!-- generated: {name} -->\n")
        _, end, tail = rest.partition("<!-- end -->")
        if not (found and end) or found in tail:
            raise ValueError(f"{page} has not exactly one place for {name}")
        text = f"{head}{found}\n{made()}\n\n{end}{tail}"
    return text


def main() -> int:
    """Write the pages, or compare them."""
    stale = 0
    for page in PARTS:
        path = ROOT / "docs" / page
        text = path.read_text("utf-8")
        made = render(page, text)
        if made == text:
            continue
        if sys.argv[1:] == ["check"]:
            print(f"{page} is out of date: run tools/gen_docs.py", file=sys.stderr)
            stale = 1
        else:
            path.write_text(made, "utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main())
