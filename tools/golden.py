"""Write the golden journals: runs that every later release has to read and to carry on.

    python -m tools.golden            write those of this release's schema that are not there yet
    python -m tools.golden --again    write all of this schema anew (only before it is released)

A golden journal is `tests/golden/v<schema>_<name>.jsonl`, the text of one record a line, with what a host read of the
run beside it in `.json`. The runs have a fixed id and a clock that stands still, so the same code writes the same
bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
from tests.golden.runs import RUNS

from overt import Runtime
from overt.journal.codec import SCHEMA
from overt.stores import MemoryStore

FOLDER = Path(__file__).parent.parent / "tests" / "golden"


async def journal(name: str) -> tuple[str, str]:
    """Run one of them; return its journal, and what can be read of it."""
    case, store = RUNS[name], MemoryStore()
    await case.begin(store)
    records = await store.read(name)
    runtime = await Runtime.open(case.agent, name, **case.options(store))
    seen = {
        "result": runtime.result().model_dump(mode="json"),
        "handles": [view.model_dump(mode="json") for view in runtime.list()],
        "transcript": [m.model_dump(mode="json") for m in runtime.transcript(runtime.result().handle)],
    }
    text = json.dumps(seen, indent=1, ensure_ascii=False, sort_keys=True)
    return "".join(f"{rec.text}\n" for rec in records), text + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Write what is missing, or everything; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--again", action="store_true")
    again = bool(parser.parse_args(argv).again)
    for name in RUNS:
        path = FOLDER / f"v{SCHEMA}_{name}.jsonl"
        if again or not path.exists():
            facts, seen = anyio.run(journal, name)
            path.write_text(facts, encoding="utf-8", newline="\n")
            path.with_suffix(".json").write_text(seen, encoding="utf-8", newline="\n")
            print(f"wrote {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
