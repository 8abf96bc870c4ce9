"""`llms.txt` and `llms-full.txt`: every page of the navigation, as plain text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import llms

from tests.docs.site import site

__all__ = ("site",)

pytestmark = pytest.mark.timeout(300)

PAGE = """# Title { #anchor }

<!-- generated: table -->

First sentence, with [a link](there.md) and `code`. Second.
<!-- check: 6 == 6 -->

<!-- not run: it needs a key
and two lines -->
```python
print(1)  # <!-- stays -->
#> 1
```

<!-- end -->

::: overt.Budget
    options:
      members: []
"""


def test_what_serves_the_harness_is_taken_out() -> None:
    made = llms.cleaned(PAGE)
    assert made.startswith(
        "# Title\n\nFirst sentence, with [a link](there.md) and `code`. Second.\n\n```python\n"
    )
    assert made.count("<!--") == 1
    assert "print(1)  # <!-- stays -->\n#> 1\n```" in made
    assert "### overt.Budget\n\n```python\nclass Budget(BaseModel):\n" in made
    assert "    max_turns: int = 6\n" in made
    assert "options:" not in made


def test_the_first_sentence_describes_a_page() -> None:
    assert llms.summary(PAGE) == "First sentence, with a link and `code`."
    assert llms.summary("# Title\n\n| a | b |\n| --- | --- |\n") == ""


def test_pages_come_in_the_order_of_the_navigation() -> None:
    nav = [{"One": [{"A": "index.md"}, {"Two": ["reference/index.md"]}]}, {"B": "decisions/README.md"}]
    found = [(page.section, page.title, page.url) for page in llms.pages(nav)]
    assert found == [
        ("One", "A", "./"),
        ("Two", "Every public name", "reference/"),
        ("B", "Decisions", "decisions/"),
    ]


def test_every_page_is_in_both_and_every_link_leads_to_it(site: Path) -> None:
    short = (site / "llms.txt").read_text("utf-8")
    full = (site / "llms-full.txt").read_text("utf-8")
    listed = re.findall(r"^- \[(.+?)\]\((.+?)\)", short, re.MULTILINE)
    pages = list(llms.pages(llms.configuration()["nav"]))
    assert [(page.title, page.url) for page in pages] == listed
    at = 0
    for page in pages:
        assert (site / page.url / "index.html").is_file()
        title = re.search(r"^# .+$", llms.cleaned((llms.DOCS / page.path).read_text("utf-8")), re.MULTILINE)
        assert title is not None
        at = full.index(title[0], at) + 1
    outside = re.sub(r"^```.*?^```", "", full, flags=re.DOTALL | re.MULTILINE)
    assert "<!--" not in outside
    assert not re.search(r"^::: ", outside, re.MULTILINE)
    assert "class TaskResult(BaseModel, Generic[OutputT_co]):" in full
