"""Print how long `import overt` takes in a fresh interpreter, and how many modules it loads."""

from __future__ import annotations

import statistics
import subprocess
import sys

CODE = "import sys, time; t = time.perf_counter(); import overt; print(time.perf_counter() - t, len(sys.modules))"


def main(rounds: int = 9) -> None:
    seconds: list[float] = []
    modules = 0
    for _ in range(rounds):
        out = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True).stdout
        took, loaded = out.split()
        seconds.append(float(took))
        modules = int(loaded)
    print(
        f"import overt: {statistics.median(seconds) * 1000:.1f} ms (median of {rounds}), {modules} modules loaded"
    )


if __name__ == "__main__":
    main()
