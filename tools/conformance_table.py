"""Writes the table of what models are checked for; `conformance_table.py check` compares it.

A cell has a ✓ where `tests/conformance/test_models.py` runs the check, and a number where it is left out, with the
reason below: the tests and the table are made from the same lists.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.conformance.columns import COLUMNS  # noqa: E402  # found by the line above

from overt.testing import MODEL_CHECKS  # noqa: E402  # as above

PAGE = ROOT / "docs" / "models.md"


def table() -> str:
    """Return the table and the reasons of what is left out."""
    numbers: dict[str, int] = {}
    rows: list[str] = []
    for check in MODEL_CHECKS:
        cells: list[str] = []
        for column in COLUMNS:
            reason = column.reasons.get(check.name)
            number = None if reason is None else numbers.setdefault(reason, len(numbers) + 1)
            cells.append("✓" if number is None else f"({number})")
        rows.append(f"| {check.says} | " + " | ".join(cells) + " |")
    return "\n".join(
        [
            "| what is asked | " + " | ".join(column.name for column in COLUMNS) + " |",
            "| --- |" + " --- |" * len(COLUMNS),
            *rows,
            "",
            "Not asked, since:",
            "",
            *(f"{number}. {reason}" for reason, number in numbers.items()),
        ]
    )


def render(page: str) -> str:
    """Return the page with the table as the tests have it now."""
    made, count = re.subn(
        r"(<!-- generated: conformance -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}\n{table()}\n\n{found[2]}",
        page,
        flags=re.DOTALL,
    )
    if count != 1:
        raise ValueError(f"{PAGE.name} has {count} places for the table, not one")
    return made


def main() -> int:
    """Write the page, or compare it."""
    page = PAGE.read_text(encoding="utf-8")
    made = render(page)
    if sys.argv[1:] == ["check"]:
        if made != page:
            print(f"{PAGE.name} is out of date: run tools/conformance_table.py", file=sys.stderr)
        return int(made != page)
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
