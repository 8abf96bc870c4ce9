"""Every block of every page is run or says why not, and every number in a sentence is shown or checked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import gen_docs
from tools.fences import RUN, everything, faults, markdown, page, scan, unread
from tools.prose import checks, unchecked

from tests.docs.pages import ROOT

BLOCK = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[ \t]*(?:python|console)\b", re.MULTILINE)


@pytest.mark.parametrize("path", markdown(), ids=lambda path: str(path.relative_to(ROOT).with_suffix("")))
def test_every_block_is_run_or_says_why_not(path: Path) -> None:
    found = page(path)
    runs = [fence for fence in found.fences if fence.language in RUN]
    assert len(runs) == len(BLOCK.findall(path.read_text("utf-8")))
    assert [f"{path.name}:{line}: {told}" for line, told in faults(found)] == []
    assert [f"{path.name}:{line}: {told}" for line, told in unread(path.read_text("utf-8"))] == []


def test_what_is_left_out_is_known() -> None:
    left_out = [(found.path.name, fence.unrun) for found in everything() for fence in found.fences
                if fence.unrun is not None]  # fmt: skip
    assert left_out == [("models.md", "the provider and the adapter in it are yours")]


def test_only_what_is_generated_says_so() -> None:
    said = {
        (str(path.relative_to(ROOT)).removeprefix("docs/"), name)
        for path in markdown()
        for name in re.findall(r"<!--\s*generated:\s*(.*?)\s*-->", path.read_text("utf-8"))
        if path.name != "CONTRIBUTING.md"
    }
    # The table of what adapters pass is compared by a test of its own.
    assert said == {
        ("models.md", "conformance"),
        *((page, name) for page, parts in gen_docs.PARTS.items() for name in parts),
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("A quote:\n\n> ```python\n> print(1)\n> #> 2\n> ```\n", 3),
        ("- ```python\n  print(1)\n  ```\n", 1),
        ("1. > ~~~python\n", 1),
        ("One.\n\n<pre><code>print(1)\n</code></pre>\n", 3),
        ("One.\n\n    import overt\n\nTwo.\n", 3),
        ("<!-- hidden\n\n```python\nx = 1\n```\n\n-->\n", 1),
        ("One.\n\n<!-- check: overt.x == 3\n", 3),
        ("\ufeffOne.\n", 1),
        ("```text\nimport overt\n\nx = …\n```\n", 1),
        ("```text\nanyio.run(main)\n```\n", 1),
        ("```text\nprinted(…\n#> 3\n```\n", 1),
        ("```text\n$ python one.py\n```\n", 1),
    ],
)
def test_a_program_that_looks_like_prose(text: str, line: int) -> None:
    assert line in [number for number, _ in unread(text)]


@pytest.mark.parametrize(
    "text",
    [
        "- One\n\n    two\n\n1. One\n\n    ```python\n    x = 1\n    ```\n",
        "!!! note\n\n    ```python\n    x = 1\n    ```\n\n    More.\n",
        "::: overt.Agent\n\n    options:\n      members: []\n",
        "<!-- check: x ==\n  3 -->\n\n```html\n<!-- a\n<pre>\n```\n",
        "```text\n$ make demo\nError: import of x failed\nProcess 1 (of 2)\n```\n",
    ],
)
def test_what_is_no_program_or_is_run(text: str) -> None:
    assert list(unread(text)) == []


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
