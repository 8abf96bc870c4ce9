"""Writes `llms.txt` and `llms-full.txt` into a built site: its pages for readers that take plain text.

The first lists the pages by section, each with its first sentence; the second has all of them in that order. What only
serves our harness is taken out, and of the reference the text stands in the place of its directives.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import griffe
from mkdocs.utils.yaml import get_yaml_loader, yaml_load
from tools.site_names import PublicNames

__all__ = ("Page", "cleaned", "pages", "summary", "write")

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FENCE = re.compile(r"^ *(```|~~~)")
COMMENT = re.compile(r"<!--.*?-->[ \t]*\n?", re.DOTALL)


@dataclass(frozen=True)
class Page:
    """A page of the navigation."""

    section: str
    title: str
    path: str
    """Of its Markdown, below `docs`."""

    @property
    def url(self) -> str:
        """Where it is in the site."""
        folder, _, name = self.path.removesuffix(".md").rpartition("/")
        parts = [folder] if name in ("index", "README") else [folder, name]
        return "".join(f"{part}/" for part in parts if part) or "./"


def configuration() -> dict[str, Any]:
    """Return `mkdocs.yml`."""
    with (ROOT / "mkdocs.yml").open(encoding="utf-8") as file:
        return yaml_load(file, get_yaml_loader())


def pages(nav: list[Any], section: str = "") -> Iterator[Page]:
    """Yield the pages of a navigation, in its order."""
    for entry in nav:
        (title, inside), *_ = entry.items() if isinstance(entry, dict) else [("", entry)]
        if isinstance(inside, list):
            yield from pages(inside, title)
        else:
            found = re.search(r"^# (.+)$", (DOCS / inside).read_text("utf-8"), re.MULTILINE)
            yield Page(section or title, title if section and title else found[1] if found else title, inside)


def cleaned(text: str) -> str:
    """Return a page without what is only there for our harness."""
    made: list[str] = []
    for is_code, part in _parts(text):
        if not is_code:
            part = COMMENT.sub("", part)
            part = re.sub(r"^(#+ .*?)\s*\{ *#[^}]*\}", r"\1", part, flags=re.MULTILINE)
            part = re.sub(
                r"^::: (\S+)(?:\n {4}.*)*$", lambda found: _described(found[1]), part, flags=re.MULTILINE
            )
        made.append(part)
    return re.sub(r"\n{3,}", "\n\n", "".join(made)).strip() + "\n"


def summary(text: str) -> str:
    """Return the first sentence of a page."""
    for block in cleaned(text).split("\n\n"):
        if block and not re.match(r"#|\||```|!!!|\?\?\?|- |<|\d+\.|>", block):
            plain = re.sub(r"\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])", r"\1", " ".join(block.split()))
            return re.split(r"(?<=[.:])\s+(?=[A-Z`*(])", plain)[0].rstrip(":")
    return ""


def write(site: Path) -> None:
    """Write both files."""
    config = configuration()
    found = list(pages(config["nav"]))
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}"]
    section = ""
    for page in found:
        if page.section != section:
            section = page.section
            lines += ["", f"## {section}", ""]
        told = summary((DOCS / page.path).read_text("utf-8"))
        lines.append(f"- [{page.title}]({page.url}){f': {told}' if told else ''}")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")
    full = [cleaned((DOCS / page.path).read_text("utf-8")) for page in found]
    (site / "llms-full.txt").write_text("\n".join(full), "utf-8")


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """Yield a page in pieces, fences apart from the rest."""
    piece: list[str] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        mark = FENCE.match(line)
        if mark and not fence:
            yield False, "".join(piece)
            piece, fence = [line], mark[1]
        elif mark and mark[1] == fence:
            yield True, "".join([*piece, line])
            piece, fence = [], ""
        else:
            piece.append(line)
    yield bool(fence), "".join(piece)


# ------------------------------------------------------------------ the reference as text


@cache
def _package() -> griffe.Module:
    loader = griffe.GriffeLoader(
        search_paths=[ROOT / "src"],
        allow_inspection=False,
        docstring_parser=griffe.Parser.google,
        extensions=griffe.load_extensions("griffe_pydantic", PublicNames()),
    )
    return cast("griffe.Module", loader.load("overt"))


def _described(name: str) -> str:
    thing = cast("griffe.Object", _package()[name.removeprefix("overt.")])
    return f"### {name}\n\n```python\n" + "\n".join(_lines(thing)) + "\n```\n"


def _lines(thing: griffe.Object, indent: str = "") -> Iterator[str]:
    inner = indent + "    "
    if isinstance(thing, griffe.Attribute):
        annotation = f": {thing.annotation}" if thing.annotation is not None else ""
        value = f" = {thing.value}" if thing.value is not None else ""
        yield f"{indent}{thing.name}{annotation}{value}"
        yield from _docstring(thing, indent)
    elif isinstance(thing, griffe.Function):
        start = "async def" if "async" in thing.labels else "def"
        for each in thing.overloads or [thing]:
            yield f"{indent}{start} {each.signature(name=thing.name)}: ..."
        yield from _docstring(thing, inner)
    elif isinstance(thing, griffe.Class):
        bases = ", ".join(map(str, thing.bases))
        yield f"{indent}class {thing.name}{f'({bases})' if bases else ''}:"
        yield from _docstring(thing, inner)
        for member in thing.members.values():
            yield ""
            yield from _lines(cast("griffe.Object", member), inner)


def _docstring(thing: griffe.Object, indent: str) -> Iterator[str]:
    text = thing.docstring.value if thing.docstring is not None else ""
    if isinstance(thing, griffe.Class):
        # Each attribute says it itself.
        text = re.sub(r"\n*^Attributes:\n(?: +.*\n?|\n)*", "\n\n", text, flags=re.MULTILINE).strip()
    if text:
        yield from (f"{indent}{line}".rstrip() for line in f'"""{text}"""'.splitlines())
