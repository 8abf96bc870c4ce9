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
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn

import pytest
from playwright.sync_api import Browser, Error, sync_playwright
from tools.npm import NoNode
from tools.site_build import SITE, build

__all__ = ("address", "browser", "inventory", "site")

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


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium of this machine: the one of OVERT_CHROMIUM, or the one on PATH."""
    path = os.environ.get("OVERT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        _missing("OVERT_REQUIRE_BROWSER", "there is no Chromium; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(executable_path=path, args=ARGUMENTS.split())
        except Error as error:
            _missing("OVERT_REQUIRE_BROWSER", f"{path} does not start: {error}")
        yield started
        started.close()


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
