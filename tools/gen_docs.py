"""Writes what the documentation takes from the code: `gen_docs.py` writes it, `gen_docs.py check` compares.

A page has the generated text between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from overt.core.lifecycle import TRANSITIONS, VERBS, Move, Reaction
from overt.result import State

PAGE = Path(__file__).parent.parent / "docs" / "concepts.md"
MOVES = {
    Move.ADMIT: "a wake begins: the handle has a slot and something to do",
    Move.PARK: "every call of the batch is finished, has asked, or waits for a suspended child",
    Move.RESUME: "what the wake waited for is there: answers to its own questions, or its children's results",
    Move.SETTLE: "the wake ends, with one of the statuses of a result",
    Move.REOPEN: "`recover` or `extend` goes on with a wake that failed, was cut off or met a limit",
    Move.CLOSE: "nothing more is accepted; the handle stays readable",
}
REACTIONS = {
    Reaction.TAKEN: "taken",
    Reaction.IGNORED: "nothing happens",
    Reaction.REFUSED: "refused, as a value",
    Reaction.RAISES: "raises",
}


def picture() -> str:
    """Draw the states; fails when a move has no place in the drawing."""
    edges: dict[tuple[State, State], str] = {}
    for (source, move), target in TRANSITIONS.items():
        edges[source, target] = ", ".join(filter(None, [edges.get((source, target), ""), str(move)]))

    def label(source: State, target: State, width: int) -> str:
        text = edges.pop((source, target))
        if len(text) > width:
            raise ValueError(f"{text!r} does not fit the drawing")
        return text.center(width)

    idle, running, suspended, closed = State.IDLE, State.RUNNING, State.SUSPENDED, State.CLOSED
    lines = [
        f" spawn          {label(idle, running, 17)}          {label(running, suspended, 10)}",
        "-------> idle ------------------> running ----------> suspended",
        "         |  ^                      |   ^                 |  |",
        f"         |  |  {label(running, idle, 20)}|   |{label(suspended, running, 17)}|  |",
        "         |  +----------------------+   +-----------------+  |",
        f"         |  |{label(suspended, idle, 47)}|",
        f"  {label(idle, closed, 6)} |  +-----------------------------------------------+",
        "         v",
        "       closed",
    ]
    if edges:
        raise ValueError(f"the drawing has no place for {sorted(edges)}")
    return "\n".join(line.rstrip() for line in lines)


def lifecycle() -> str:
    """Return the states, the moves between them and what each verb meets."""
    moves = [
        f"| `{move}` | {', '.join(f'{a} → {b}' for (a, m), b in TRANSITIONS.items() if m is move)} | {told} |"
        for move, told in MOVES.items()
    ]
    verbs = list(dict.fromkeys(verb for _, verb in VERBS))
    rows = [
        f"| `{verb}` | " + " | ".join(REACTIONS[VERBS[state, verb]] for state in State) + " |"
        for verb in verbs
    ]
    return "\n".join(
        [
            "```text",
            picture(),
            "```",
            "",
            "| move | from → to | when |",
            "| --- | --- | --- |",
            *moves,
            "",
            "| verb of the host | " + " | ".join(State) + " |",
            "| --- |" + " --- |" * len(State),
            *rows,
        ]
    )


def render(page: str) -> str:
    """Return the page with its generated parts as the code has them now."""
    made, count = re.subn(
        r"(<!-- generated: lifecycle -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}\n{lifecycle()}\n\n{found[2]}",
        page,
        flags=re.DOTALL,
    )
    if count != 1:
        raise ValueError(f"{PAGE.name} has {count} places for the lifecycle, not one")
    return made


def main() -> int:
    """Write the page, or compare it."""
    page = PAGE.read_text(encoding="utf-8")
    made = render(page)
    if sys.argv[1:] == ["check"]:
        if made != page:
            print(f"{PAGE.name} is out of date: run tools/gen_docs.py", file=sys.stderr)
        return int(made != page)
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
