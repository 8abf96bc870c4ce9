"""The built site, for tests of it.

The fixture `site` is its folder, built once for all processes of a test run and left alone where nothing has changed;
`address` is where it is served on this machine, and `browser` a real one. Without the programs from npm, or without a
browser, the tests that need them are skipped, or fail where CI, OVERT_REQUIRE_NPM or OVERT_REQUIRE_BROWSER is set.
"""

from __future__ import annotations

import functools
import os
import shutil
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn

import pytest
from playwright.sync_api import BrowserContext, Error, sync_playwright
from tools.npm import NoNode
from tools.site_build import SITE, build

__all__ = ("address", "browser", "in_browser", "inventory", "site")

ARGUMENTS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
)


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the built site."""
    try:
        build()
    except NoNode as error:
        _missing("OVERT_REQUIRE_NPM", str(error))
    return SITE


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Where the site is served; ends with a slash."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


class OwnThread:
    """A browser's window on a thread of its own.

    Playwright's plain interface keeps an event loop running on the thread it was started on as long as it lives: no
    test after it could start one there.
    """

    def __init__(self, path: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="browser")
        self._open = ExitStack()
        try:
            self.window = self._thread.submit(self._start, path).result()
        except BaseException:
            self.close()
            raise

    def _start(self, path: str) -> BrowserContext:
        playwright = self._open.enter_context(sync_playwright())
        browser = self._open.enter_context(
            playwright.chromium.launch(executable_path=path, args=ARGUMENTS.split())
        )
        # One window, so that a script is read once.
        return self._open.enter_context(browser.new_context(color_scheme="light", reduced_motion="reduce"))

    def run(self, test: Callable[[BrowserContext], None]) -> None:
        """Run a test there, with the window."""
        self._thread.submit(test, self.window).result()

    def close(self) -> None:
        """End the browser and its thread."""
        self._thread.submit(self._open.close).result()
        self._thread.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator[OwnThread]:
    """Chromium of this machine: the one of OVERT_CHROMIUM, or the one on PATH."""
    path = os.environ.get("OVERT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        _missing("OVERT_REQUIRE_BROWSER", "there is no Chromium; on Debian: apt-get install chromium")
    try:
        started = OwnThread(path)
    except Error as error:
        _missing("OVERT_REQUIRE_BROWSER", f"{path} does not start: {error}")
    yield started
    started.close()


def in_browser(test: Callable[[BrowserContext, str], None]) -> Callable[[OwnThread, str], None]:
    """Make a test of a window and the site's address one that pytest can call."""

    def called(browser: OwnThread, address: str) -> None:
        browser.run(lambda window: test(window, address))

    called.__name__, called.__doc__ = test.__name__, test.__doc__
    return called


@functools.cache
def inventory(site: Path) -> list[tuple[str, str]]:
    """Return the names of `objects.inv` and where each is described, as the file has them."""
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    rows = [line.rsplit(" ", 4) for line in zlib.decompress(packed).decode().splitlines()]
    return [(name, uri.replace("$", name)) for name, _, _, uri, _ in rows]


def _missing(required: str, why: str) -> NoReturn:
    if os.environ.get("CI") or os.environ.get(required):
        pytest.fail(why)
    pytest.skip(why)
