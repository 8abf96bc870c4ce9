"""Every block of every page is run or says why not, and every number in a sentence is shown or checked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.fences import RUN, faults, markdown, page, scan
from tools.prose import checks, unchecked

from tests.docs.pages import ROOT

BLOCK = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[ \t]*(?:python|console)\b", re.MULTILINE)


@pytest.mark.parametrize("path", markdown(), ids=lambda path: str(path.relative_to(ROOT).with_suffix("")))
def test_every_block_is_run_or_says_why_not(path: Path) -> None:
    found = page(path)
    runs = [fence for fence in found.fences if fence.language in RUN]
    assert len(runs) == len(BLOCK.findall(path.read_text("utf-8")))
    assert [f"{path.name}:{line}: {told}" for line, told in faults(found)] == []


@pytest.mark.parametrize(
    "path",
    # A decision says what was so on its day.
    [path for path in markdown() if path.name != "CONTRIBUTING.md" and path.parent.name != "decisions"],
    ids=lambda path: str(path.relative_to(ROOT).with_suffix("")),
)
def test_every_number_in_a_sentence_is_shown_or_checked(path: Path) -> None:
    assert [f"{path.name}:{line}: {told}" for line, told in unchecked(path.read_text("utf-8"))] == []


def told(text: str) -> list[tuple[int, str]]:
    return [(line, said.split(" ")[0]) for line, said in unchecked(text)]


SHOWN = "```python\nprint(1_200)\n#> 1200 of 7\n```\n"


@pytest.mark.parametrize(
    "sentence",
    [
        "It took 1,200 of 7.",
        "| a | 7 |\n| - | - |\n| b | 1200 |",
        "`3` and ``4 ` 4``, [x](y.md#h-3), <https://a.b/3>, SHA-256, gpt-5-mini, A-1001, v2.3, U+00E9, 5xx, HTTP 404",
        "3. Third\n4. Fourth\n\n## 5. Fifth",
        "<!-- generated: x -->\n\nNo fewer than 3.\n\n<!-- end -->",
        "There are 3.\n\n<!-- check: overt.x == 3 -->",
        "- There are 3.\n\n- There are 4.\n\n<!-- check: overt.x == 3 and overt.y == 4.0 -->",
        "There are 3,\nno, 100,000.\n\n<!-- check: overt.x == 3 -->\n<!-- check: overt.y == 100_000 -->",
        "It leaves 1,193.\n\n<!-- check: 1200 - 7 == 1193 -->",
        "Since 2025-11-25.\n\n<!-- check: '2025-11-25' in overt.versions -->",
    ],
)
def test_a_number_that_is_shown_or_checked(sentence: str) -> None:
    assert told(f"{SHOWN}\n{sentence}\n") == []


@pytest.mark.parametrize(
    ("sentence", "wrong"),
    [
        ("It took 1,201 of 7.", [(6, "1,201")]),
        ("## Take 3", [(6, "3")]),
        ("| a | 3 |\n| - | - |\n| b | 7 |", [(6, "3")]),
        ("From 5-8, of 0.5 s, 30s, a 64-bit.", [(6, "5"), (6, "8"), (6, "0.5"), (6, "30"), (6, "64")]),
        ("There are 3.\n\nAnd more.\n\n<!-- check: overt.x == 3 -->", [(6, "3")]),
        ("There are 3.\n\n<!-- check: overt.x == 4 -->", [(6, "3")]),
        ("There are 3.\n\n<!-- check: 3 == 3 -->", [(6, "3"), (8, "the")]),
        ("There are 3.\n\n<!-- check: len('abc') + 8 == 3 + 8 -->", [(6, "3"), (8, "the")]),
        ("There are 3.\n\n<!-- check: overt.x == 3 and 3 + 8 == 11 -->", [(6, "3"), (8, "the")]),
        ("There are 3.\n\n```text\n<!-- check: overt.x == 3 -->\n```", [(6, "3")]),
        ("There are 3.\n\n<!-- check: overt.x = 3 -->", [(6, "3"), (8, "the")]),
        ("Output that nobody runs:\n\n```text\n31\n```\n\nIt says 31.", [(12, "31")]),
        ("<!-- not run: there is none -->\n\n```python\nprint(31)\n#> 31\n```\n\nIt says 31.", [(13, "31")]),
    ],
)
def test_a_number_that_nothing_shows(sentence: str, wrong: list[tuple[int, str]]) -> None:
    assert sorted(told(f"{SHOWN}\n{sentence}\n")) == sorted(wrong)


def test_a_check_has_its_line_and_its_text() -> None:
    (check,) = checks(f"{SHOWN}\nOne.\n<!-- check: overt.x ==\n  3 -->\n")
    assert (check.line, check.source) == (7, "overt.x == 3")


def test_a_fence_that_nothing_closes() -> None:
    with pytest.raises(ValueError, match="line 3"):
        scan("One.\n\n```python\nx = 1\n")
