"""The site in a real browser: nothing is asked from elsewhere, nothing overflows, diagrams are drawn, search works.

Where OVERT_SCREENSHOTS names a folder, a picture of every page is put there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    Response,
    ViewportSize,
    expect,
)

from tests.docs.site import address, browser, in_browser, site

__all__ = ("address", "browser", "site")

pytestmark = pytest.mark.timeout(300)

PAGES = (
    "",
    "start/first-run/",
    "corrections/replay/",
    "guides/budgets/",
    "go/parity/",
    "reference/",
    "reference/requests/",
    "reference/states/",
    "reference/events/",
)
PATIENCE = 30_000
"""Milliseconds: as long as Playwright waits for everything else; its 5 s are little beside other processes."""
DARK = ("", "corrections/replay/", "reference/states/")
"""Looked at in the other colours too, which are the same on every page; all are where pictures are taken."""
SIZES: dict[str, ViewportSize] = {
    "desktop": {"width": 1280, "height": 900},
    "phone": {"width": 390, "height": 844},
}
SCHEMES: dict[Literal["light", "dark"], str] = {"light": "default", "dark": "slate"}
# What is wider than the window with nothing around it that scrolls, or a word of code in a table broken into two lines.
UNTIDY = r"""() => {
  const scrolls = (element) => {
    for (let at = element; at && at !== document.body; at = at.parentElement) {
      const way = getComputedStyle(at).overflowX;
      if ((way === "auto" || way === "scroll") && at.getBoundingClientRect().right <= innerWidth + 1) return true;
    }
    return false;
  };
  const told = (element) => `${element.tagName} ${element.textContent.trim().slice(0, 60)}`;
  const shown = [...document.querySelectorAll(".md-content :is(table, pre, svg)")].filter((e) => e.clientWidth > 0);
  const wide = shown.filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !scrolls(e));
  const broken = [...document.querySelectorAll(".md-content table code")].filter(
    (e) => /^[\w.()="]+$/.test(e.textContent) && e.getClientRects().length > 1
  );
  const width = document.documentElement.scrollWidth;
  const page = width > innerWidth ? [`the page: ${width}`] : [];
  return [...page, ...wide.map(told), ...broken.map((e) => `broken: ${told(e)}`)];
}"""


@contextmanager
def watched(window: BrowserContext, address: str) -> Iterator[tuple[Page, list[str]]]:
    """Open a page; what it asks from elsewhere and what its console calls an error is in the list."""
    wrong: list[str] = []

    def asked(request: Request) -> None:
        if not request.url.startswith((address, "data:", "blob:")):
            wrong.append(request.url)

    def said(message: ConsoleMessage) -> None:
        if message.type == "error":
            wrong.append(message.text)

    def answered(response: Response) -> None:
        if response.status >= 400:
            wrong.append(f"{response.status} {response.url}")

    with window.new_page() as page:
        # What another test chose is forgotten before a page reads it; afterwards a late script could write it again.
        page.add_init_script("localStorage.clear()")
        page.set_viewport_size(SIZES["desktop"])
        page.on("request", asked)
        page.on("console", said)
        page.on("response", answered)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        yield page, wrong


def drawn(page: Page) -> None:
    """Wait until every diagram of a page is there."""
    page.wait_for_function(
        "document.querySelectorAll('pre.diagram').length === document.querySelectorAll('.drawing svg').length"
    )


@in_browser
def test_pages_are_whole_and_ask_nobody(window: BrowserContext, address: str) -> None:
    pictures = os.environ.get("OVERT_SCREENSHOTS")
    found: dict[str, list[str]] = {}
    for path in PAGES:
        with watched(window, address) as (page, wrong):
            for scheme in SCHEMES:
                if scheme == "dark" and path not in DARK and not pictures:
                    continue
                # Colours are chosen before the page is read: a change while its scripts begin may be missed.
                page.emulate_media(color_scheme=scheme)
                page.goto(address + path)
                drawn(page)
                for size, viewport in SIZES.items():
                    page.set_viewport_size(viewport)
                    expect(page.locator("body")).to_have_attribute(
                        "data-md-color-scheme", SCHEMES[scheme], timeout=PATIENCE
                    )
                    wrong += [f"{size}, {scheme}: {told}" for told in page.evaluate(UNTIDY)]
                    if pictures:
                        name = path.strip("/").replace("/", "-") or "index"
                        page.wait_for_timeout(300)  # for the eye: colours fade
                        page.screenshot(path=Path(pictures) / f"{name}.{size}.{scheme}.png", full_page=True)
            if wrong:
                found[path] = wrong
    assert found == {}


@in_browser
def test_a_diagram_is_drawn_anew_in_the_other_colours(window: BrowserContext, address: str) -> None:
    with watched(window, address) as (page, wrong):
        page.goto(address + "reference/states/")
        drawn(page)
        label = page.locator(".drawing svg .nodeLabel, .drawing svg text").filter(has_text="suspended").first
        before = label.evaluate("element => getComputedStyle(element).color")
        page.locator("label[title=Light]").click()  # from what the system has to light, then to dark
        page.locator("label[title=Dark]").click()
        expect(label).not_to_have_css("color", before, timeout=PATIENCE)
        expect(page.locator("pre.diagram")).to_be_hidden(timeout=PATIENCE)
        assert wrong == []


@in_browser
def test_search_finds_a_page(window: BrowserContext, address: str) -> None:
    with watched(window, address) as (page, wrong):
        page.goto(address)
        page.locator(".md-search__input").click()
        page.locator(".md-search__input").press_sequentially("idempotency")
        found = page.locator("a.md-search-result__link[href*='corrections/idempotency/']").first
        expect(found).to_be_visible(timeout=PATIENCE)
        found.click()
        expect(page).to_have_url(re.compile("corrections/idempotency/"), timeout=PATIENCE)
        assert wrong == []


@in_browser
def test_a_request_elsewhere_and_a_wide_table_are_noticed(window: BrowserContext, address: str) -> None:
    with watched(window, address) as (page, wrong):
        page.route("http://elsewhere.invalid/**", lambda route: route.fulfill(body=""))
        page.goto(address + "decisions/")
        page.evaluate("""() => {
          const wide = document.createElement("pre");
          wide.textContent = "x".repeat(400);
          wide.style.cssText = "width: 2000px; overflow: visible";
          document.querySelector(".md-content article").append(wide);
          return fetch("http://elsewhere.invalid/mermaid.js", { mode: "no-cors" });
        }""")
        assert any(told.startswith("PRE xxx") for told in page.evaluate(UNTIDY))
        assert wrong == ["http://elsewhere.invalid/mermaid.js"]
