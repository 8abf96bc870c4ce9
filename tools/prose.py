"""Numbers in the sentences of a page: each is printed on it, stands in its programs, or is asserted below.

A number counts as shown where an executed fence of the page has it in its output (`#>` lines, lines below a command),
or, from 10 on, as a literal of its code. Every other one needs a comment directly below its paragraph, list or table,

    <!-- check: overt.Budget().max_turns == 6 and default("max_divergences") == 2 -->

which is evaluated in the namespace of the page after the fences above it, beside `overt`, `default` (of an option of a
run), `inspect` and `metadata` (of importlib), has to be true, and has to compare that number with something that is not
written in the comment itself: a name, or numbers that the page prints. With another number in its place it may not be
true any more: `max_turns <= 60` or `max_turns != 70` says nothing of 60 or 70.

Inline code, addresses of links, comments, the numbering of lists and headings and what stands between
`<!-- generated: … -->` and `<!-- end -->` is not looked at. Nor are names (SHA-256, gpt-5-mini, A-1001, U+FFFD, 5xx)
and statuses of HTTP written as `HTTP 404`: no sentence of ours makes them what they are.
"""

from __future__ import annotations

import ast
import builtins
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tools.fences import Fence, scan

CODE_FROM = 10
"""Below it a literal of some code says nothing: nearly every program has a 1 or a 2 in it."""

_NUMBER = re.compile(r"\d{4}-\d\d-\d\d|\d+(?:[.,]\d+)*")
_COMMENT = re.compile(r"<!--(?:(?!-->).)*-->", re.DOTALL)
_CHECK = re.compile(r"<!--\s*check:(?P<source>(?:(?!-->).)*)-->", re.DOTALL)
_GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)
_LEFT_OUT = (
    re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL),  # inline code
    re.compile(r"(?<=\])\([^)\s]*(?:\s+\"[^\"]*\")?\)"),  # where a link goes
    re.compile(r"^\s*\[[^\]]+\]:.*$", re.MULTILINE),  # and where a link by name goes
    re.compile(r"<[^<>\n]*>|\bhttps?://\S+|\{[:#.][^}\n]*\}"),  # tags, addresses, attributes
    re.compile(r"^[ \t>]*(?:#+\s+|[-*]\s+)?\d+[.)](?=\s)", re.MULTILINE),  # numbering
    re.compile(r"\b\dxx\b|\bU\+[0-9A-F]{4,6}\b|\bHTTP \d{3}\b"),
    re.compile(r"(?<![\w.])[A-Za-z_]\w*(?:[-._+]\w+)*"),  # words, and names that have digits in them
)
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d+[.)])\s|[ \t]{2,}\S")


@dataclass(frozen=True, kw_only=True)
class Check:
    """A comment that asserts something."""

    source: str
    line: int
    start: int
    end: int


def checks(text: str) -> list[Check]:
    """The checks of a page in order; those that a fence shows are none."""
    return [
        Check(
            source=" ".join(found["source"].split()),
            line=text.count("\n", 0, found.start()) + 1,
            start=found.start(),
            end=found.end(),
        )
        for found in _CHECK.finditer(_blank(text, ((fence.start, fence.end) for fence in scan(text))))
    ]


def unchecked(text: str) -> Iterator[tuple[int, str]]:
    """Line and what is wrong there: numbers that nothing shows, and checks that are none."""
    fences = scan(text)
    printed = set(_printed(fences))
    known = printed | {
        number for number in _literals(fences) if isinstance(number, float) and number >= CODE_FROM
    }
    asserted: dict[int, set[float | str]] = {}
    lines, said = _prose(text)
    for check in checks(text):
        try:
            numbers = covered(check.source, printed)
        except SyntaxError as error:
            yield check.line, f"the check is no expression: {error.msg}"
            continue
        if not numbers:
            yield (
                check.line,
                "the check says itself all that it compares: it needs a name, or numbers the page prints",
            )
        for covers in _above(lines, check.line):
            asserted.setdefault(covers, set()).update(numbers)
    for number, line in enumerate(said, 1):
        for found in _NUMBER.finditer(line):
            value = _value(found[0])
            if value not in known and value not in asserted.get(number, ()):
                yield number, f"{found[0]} is neither printed on the page nor checked below its paragraph"


def numbers(text: str) -> Iterator[tuple[int, float | str]]:
    """Line and value of every number in the sentences of a text, shown or not."""
    for number, line in enumerate(_prose(text)[1], 1):
        for found in _NUMBER.finditer(line):
            yield number, _value(found[0])


def covered(source: str, printed: set[float | str]) -> set[float | str]:
    """The numbers a check compares with something that it does not say itself; none where any part of it does not."""
    numbers: set[float | str] = set()
    tree = ast.parse(source, mode="eval").body
    for part in tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]:
        own = {
            _value(found)
            for node in ast.walk(part)
            if isinstance(node, ast.Constant) and type(node.value) in (int, float, str)
            for found in _NUMBER.findall(str(node.value))
        }
        named = any(isinstance(node, ast.Name) and not hasattr(builtins, node.id) for node in ast.walk(part))
        # Of printed numbers one more may be made: a sum, a difference, a share.
        made = len(own) > 1 and len(own - printed) <= 1
        if not named and not made:
            return set()
        numbers |= own
    return numbers


def altered(source: str) -> Iterator[tuple[str, list[str]]]:
    """Each number of a check, and the checks that say a little less or a little more in its place."""
    tree = ast.parse(source, mode="eval")
    for node in [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]:
        said = node.value
        others: list[int | float | str]
        if isinstance(said, (int, float)) and not isinstance(said, bool):
            others = [said + 1, said - 1]
        elif isinstance(said, str):
            others = [said[: found.end()] + "1" + said[found.end() :] for found in _NUMBER.finditer(said)]
        else:
            continue
        made: list[str] = []
        for node.value in others:
            made.append(ast.unparse(tree))
        node.value = said
        if made:
            yield repr(said), made


def _value(number: str) -> float | str:
    try:
        return float(number.replace(",", ""))
    except ValueError:
        return number


def _printed(fences: list[Fence]) -> Iterator[float | str]:
    for fence in fences:
        if fence.unrun is None:
            for line in fence.source.splitlines():
                said = (
                    re.match(r"\s*#> ?(.*)", line)
                    if fence.language == "python"
                    else re.match(r"(?!\$ )(.*)", line)
                )
                if said and fence.language in ("python", "console"):
                    yield from map(_value, _NUMBER.findall(said[1]))


def _literals(fences: list[Fence]) -> Iterator[float | str]:
    for fence in fences:
        if fence.language == "python" and fence.unrun is None:
            try:
                for token in tokenize.generate_tokens(io.StringIO(fence.source).readline):
                    if token.type in (tokenize.NUMBER, tokenize.STRING):
                        yield from map(_value, _NUMBER.findall(token.string.replace("_", "")))
            except (tokenize.TokenError, SyntaxError):
                continue  # mypy says where
        elif fence.language == "console" and fence.unrun is None:
            for command in re.findall(r"^\$ (.*)$", fence.source, re.MULTILINE):
                yield from map(_value, _NUMBER.findall(command))


def _prose(text: str) -> tuple[list[str | None], list[str]]:
    """The lines of a page, `None` for those of a fence or a comment, and again with little but numbers left in them."""
    taken = [(fence.start, fence.end) for fence in scan(text)]
    bare = _blank(text, taken)
    taken += [found.span() for found in (*_GENERATED.finditer(bare), *_COMMENT.finditer(bare))]
    said = bare = _blank(text, taken)
    for pattern in _LEFT_OUT:
        said = pattern.sub(lambda found: _hidden(found[0]), said)
    lines: list[str | None] = list(bare.split("\n"))
    starts = [0, *(found.end() for found in re.finditer("\n", text)), len(text) + 1]
    for number, (start, end) in enumerate(pairwise(starts)):
        if any(first < end and start < last for first, last in taken) and not (lines[number] or "").strip():
            lines[number] = None
    return lines, said.split("\n")


def _above(lines: list[str | None], check: int) -> range:
    """The lines of the paragraph, list or table that a check at a line stands below."""
    last = check - 1
    while last and not (lines[last - 1] or "").strip():  # blank lines, and other checks
        last -= 1
    first = last
    while first > 1:
        above = lines[first - 2]
        if above is None or above.startswith("#"):
            break
        if not above.strip():
            # A list goes on past blank lines.
            further = first - 2
            while further and lines[further - 1] is not None and not (lines[further - 1] or "").strip():
                further -= 1
            before = lines[further - 1] if further else None
            if not (before and _ITEM.match(before) and _ITEM.match(lines[first - 1] or "")):
                break
        first -= 1
    return range(first, last + 1)


def _blank(text: str, spans: Iterator[tuple[int, int]] | list[tuple[int, int]]) -> str:
    for start, end in spans:
        text = text[:start] + _hidden(text[start:end]) + text[end:]
    return text


def _hidden(text: str) -> str:
    """As many lines and characters, and nothing in them."""
    return re.sub(r"[^\n]", " ", text)
