"""The toy package on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tools.toy import Toy


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path)
