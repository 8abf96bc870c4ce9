"""Programs from npm, for tests that start one.

command = npm_program("llmock")
"""

from __future__ import annotations

import os

import pytest
from tools.npm import NoNode, program

__all__ = ("npm_program",)


def npm_program(name: str) -> str:
    """Return the path of a program of `tools/node/package.json`.

    Where it is not installed the test is skipped, or fails if CI or OVERT_REQUIRE_NPM is set.
    """
    try:
        return program(name)
    except NoNode as error:
        if os.environ.get("CI") or os.environ.get("OVERT_REQUIRE_NPM"):
            pytest.fail(str(error))
        pytest.skip(str(error))
