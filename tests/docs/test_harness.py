"""What is wrong on a page fails, at the line where it stands."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest
from sybil.example import SybilFailure
from tools.fences import bound, check_types, docstrings, faults, modules, page, used

from tests.docs.pages import run_docstring, run_page


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


class Run:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.page = folder / "page.md"
        self.folder = folder / "desk"
        self.folder.mkdir()
        self.monkeypatch = monkeypatch

    def __call__(self, text: str) -> int:
        self.page.write_text(text, encoding="utf-8")
        return run_page(self.page, self.folder, "asyncio", self.monkeypatch)


def python(source: str) -> str:
    return f"```python\n{source}\n```\n"


def console(source: str) -> str:
    return f"```console\n{source}\n```\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (python("print(1)\n#> 2"), r"page.md, line 1.*printed \['1'\], the page says \['2'\]"),
        (python("print(1)"), r"printed \['1'\], the page says \[\]"),
        (python("x = 1\n#> 1"), r"printed \[\], the page says \['1'\]"),
        (python("# one.py\nprint(1)") + console("$ python one.py\n2"), r"line 5.*\$ python one.py: printed \['1'\]"),
        (python("# one.py\nraise SystemExit(3)").replace("raise", "if __name__ != 'one': raise")
         + console("$ python one.py"), r"printed \['exit status 3'\]"),
        (console("$ python none.py"), r"\$ python none.py: printed .*No such file"),
        (console("$ make demo"), "only python and overt are run"),
        (console("python one.py"), "no line of it is a command"),
        (python("x = 3") + "\nOne.\n\n<!-- check: x == 4 -->\n", r"line 7.*the check is False: x == 4"),
        ("<!-- check: x == 3 -->\n" + python("x = 3"), None),
        ("<!-- check: overt.Budget().max_turns -->", "the check is 6: "),
        ("<!-- check: overt.Budget().max_turns != 70 -->", "true without 70, too"),
        ("<!-- check: overt.Budget().max_turns <= 60 -->", "true without 60, too"),
        ("<!-- check: bool(overt) or overt == 77 -->", "true without 77, too"),
        ("<!-- check: 'x3' != overt.__name__ -->", "true without 'x3', too"),
    ],
)  # fmt: skip
def test_a_page_that_says_otherwise_fails(run: Run, text: str, told: str | None) -> None:
    with pytest.raises(SybilFailure if told else NameError, match=f"(?s){told or 'x'}"):
        run(text)


@pytest.mark.parametrize(
    "text",
    [
        python("print(1, 2)\n#> 1 …"),
        python("print(1)\nprint(2)\nprint(3)\n#> 1\n#> …\n#> 3"),
        python("x = 1") + python("print(x)\n#> 1") + "\n<!-- check: x == 1 and overt.Budget().max_turns == 6 -->\n",
        "<!-- not run: it cannot -->\n\n" + python("raise ValueError") + python("x = 1"),
        "```text\n```python\nraise ValueError\n```\n" + python("x = 1"),
        "!!! note\n\n    ```python\n    print(1)\n    #> 1\n    ```\n",
        console("$ overt --version\novert …"),
        python("# one.py\nimport os\nprint(1, flush=True)\nif __name__ == '__main__':\n    os.kill(os.getpid(), 9)")
        + console("$ python one.py now\n1\nKilled"),
        python("# one.py\nimport sys\nif __name__ == '__main__' and sys.argv[1:]:\n    raise ValueError(1)")
        + console("$ python one.py now\nTraceback …\n…\nValueError: 1\n$ python one.py"),
        python("# one.py\nx = 2") + python("# two.py\nfrom one import x\nprint(x)")
        + python("import two\nassert two.x == 2") + console("$ python two.py\n2\n$ python -m two\n2"),
    ],
)  # fmt: skip
def test_what_a_page_may_say(run: Run, text: str) -> None:
    assert run(text) >= 1


def test_an_exception_carries_the_line_of_the_page(run: Run) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # where it comes from is what counts
        run("A page.\n\n```python\nx = 1\nraise ValueError\n```\n")
    assert [entry.lineno + 1 for entry in caught.traceback if Path(entry.path) == run.page] == [5]


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("One.\n\n```py\nx = 1\n```\n", 3, "'py' is no language of a fence"),
        ("```\nx = 1\n```\n", 1, "a fence has a language"),
        ("One.\n" + python("x = 1\ny = x  # type: ignore[assignment]"), 4, "switches a checker off"),
        (python("# mypy: ignore-errors"), 2, "switches a checker off"),
        ("<!-- not run: -->\n" + python("x = 1"), 2, "says why"),
        ("<!-- not run: so -->\n```text\nx\n```\n", 2, "only what would be run"),
    ],
)
def test_what_is_refused_as_it_stands(tmp_path: Path, text: str, line: int, told: str) -> None:
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    ((found, said),) = faults(page(tmp_path / "page.md"))
    assert found == line
    assert told in said


def test_a_reason_belongs_to_the_next_fence_only(tmp_path: Path) -> None:
    text = "<!-- not run: it\ncannot -->\n\n" + python("x = 1") + "\n" + python("y = 1")
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    assert [fence.unrun for fence in page(tmp_path / "page.md").fences] == ["it\ncannot", None]


# ---------------------------------------------------------------- types


def test_types_are_told_by_page_and_line(tmp_path: Path) -> None:
    ask = python("# ask.py\nword: {} = {!r}")
    asks = python("from ask import word\n\nnumber: int = word")
    (tmp_path / "one.md").write_text("One.\n\n" + ask.format("str", "x") + asks, encoding="utf-8")
    (tmp_path / "two.md").write_text(
        "Two.\n\n"
        + ask.format("int", 1)
        + asks
        + python("import os\n\n\ndef main(x: int) -> str:\n    return os.sep * x")
        + python("def two() -> None:\n    reveal_type(main)\n\n\nmain(os.getpid())\nmain(1, 2)")
        + python("def main() -> None:\n    two()\n\n\nmain()")
        + python("import ask as asked\n\nprint(asked.word.real, missing)")
        + python("class A:\n    pass")
        + python("a: int = A()"),
        encoding="utf-8",
    )
    pages = [page(tmp_path / "one.md"), page(tmp_path / "two.md")]
    told = check_types(pages, tmp_path / "made", cache=Path(os.devnull), whole=True)
    wrong = "error: Incompatible types in assignment (expression has type"
    assert sorted(told) == [
        f'one.md:10: {wrong} "str", variable has type "int")  [assignment]',
        'two.md:21: note: Revealed type is "def (x: int) -> str"',
        'two.md:25: error: Too many arguments for "main"  [call-arg]',
        'two.md:37: error: Name "missing" is not defined  [name-defined]',
        f'two.md:44: {wrong} "A", variable has type "int")  [assignment]',
    ]


def test_modules_of_pages_that_are_gone_go(tmp_path: Path) -> None:
    (tmp_path / "one.md").write_text(python("x = 1"), encoding="utf-8")
    stale = [tmp_path / "made" / package / "_9.py" for package in ("one", "gone")]
    for path in stale:
        path.parent.mkdir(parents=True)
        path.write_text("x: int = 'a'", encoding="utf-8")
    assert (
        check_types([page(tmp_path / "one.md")], tmp_path / "made", cache=Path(os.devnull), whole=False) == []
    )
    assert [path.exists() for path in stale] == [False, True]
    assert check_types([], tmp_path / "made", cache=Path(os.devnull), whole=True) == []
    assert not stale[1].exists()


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import a.b, c as d\nfrom e import f, g as h", ["a", "d", "f", "h"]),
        ("x: int\ny, (z, *w) = 1, (2,)", ["w", "x", "y", "z"]),
        ("with a as b:\n    c = 1\nfor d in e:\n    pass", ["b", "c", "d"]),
        ("def f(x):\n    y = 1\nclass C:\n    z = 1\nasync def g(): ...", ["C", "f", "g"]),
        ("match x:\n    case [a, *b]: ...\n    case {'k': c, **d}: ...", ["a", "b", "c", "d"]),
    ],
)  # fmt: skip
def test_what_a_fence_binds(source: str, names: list[str]) -> None:
    assert sorted(bound(ast.parse(source))) == names


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f():\n    return x + y\ny = 1", {"x"}),
        ("x = x + 1", {"x"}),
        ("x += 1", {"x"}),
        ("def f(): ...\nf()", set()),
        ("f()\ndef f(): ...", {"f"}),
        (
            "@deco\ndef f(a: 'Kind', b: Other = c) -> None: ...",
            {"deco", "Kind", "Other", "c", "None"} - {"None"},
        ),
        ("print('word')", {"print"}),
    ],
)
def test_what_a_fence_takes_from_above(source: str, names: set[str]) -> None:
    assert used(ast.parse(source)) == names


# ---------------------------------------------------------------- docstrings

DOCUMENTED = '''"""A module."""


class Thing:
    """A thing.

    ```python
    print(1)
    #> {prints}
    ```
    """

    size: int = 1
    """How large.

    >>> x = 2
    >>> x + 1
    {gives}
    """

    def none(self) -> None:
        """Nothing."""
'''


def test_docstrings_are_executed_at_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "thing.py"
    path.write_text(DOCUMENTED.format(prints=1, gives=3), encoding="utf-8")
    found = list(docstrings(path))
    assert [run_docstring(each, tmp_path, "trio", monkeypatch) for each in found] == [1, 2]
    typed = [(fence.line, text) for fence, text in modules(found[1]).values()]
    assert typed == [
        (16, "\n" * 15 + "x = 2\n"),
        (17, f"from {found[1].package}._1 import x" + "\n" * 16 + "x + 1\n"),
    ]
    path.write_text(DOCUMENTED.format(prints=2, gives=4), encoding="utf-8")
    for each, told in zip(docstrings(path), (r"line 7.*printed \['1'\]", r"line 17.*Got:\n +3"), strict=True):
        with pytest.raises(SybilFailure, match=f"(?s){told}"):
            run_docstring(each, tmp_path, "trio", monkeypatch)


def test_an_exception_in_a_docstring_carries_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "thing.py"
    path.write_text(DOCUMENTED.replace("print(1)", "raise ValueError"), encoding="utf-8")
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # where it comes from is what counts
        run_docstring(next(docstrings(path)), tmp_path, "asyncio", monkeypatch)
    assert [entry.lineno + 1 for entry in caught.traceback if Path(entry.path) == path] == [8]


def test_names_are_not_shared_between_docstrings(tmp_path: Path) -> None:
    path = tmp_path / "thing.py"
    path.write_text(DOCUMENTED, encoding="utf-8")
    packages = [each.package for each in docstrings(path)]
    assert len(set(packages)) == 2
    assert all(re.fullmatch(r"thing__Thing\w*", package) for package in packages)
