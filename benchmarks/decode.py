"""How long decoding kernel names takes: many distinct names, one core.

    python -P benchmarks/decode.py names.txt

The file has one name per line, or one JSON object with a `name` per line. Names are
varied until there are 100,000 distinct ones. The table goes into docs/benchmarks.md.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put

from fusetui.gpu.kernel_names import decode
from fusetui.text.figures import percent

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
NAMES = 100_000
ROUNDS = 5
LAST_NUMBER = re.compile(r"\d+(?=\D*$)")


def names_in(path: Path) -> list[str]:
    """Return the kernel names in a file, which has one name or one JSON object with a
    `name` per line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [
        json.loads(line)["name"] if line.startswith("{") else line
        for line in lines
        if line
    ]


def varied(names: Sequence[str]) -> Iterator[str]:
    """Yield the names, then the same with other last numbers, without end and without
    repeats."""
    seen: set[str] = set()
    for turn in count():
        for name in names:
            other = LAST_NUMBER.sub(
                lambda m, add=turn: str(int(m[0]) + add),  # type: ignore[misc]
                name,
                count=1,
            )
            if other in seen:
                other = f"{other}_{turn}"
            seen.add(other)
            yield other


def main() -> None:
    """Decode NAMES distinct names ROUNDS times, and write the table into
    docs/benchmarks.md."""
    names = list(islice(varied(names_in(Path(sys.argv[1]))), NAMES))
    times: list[float] = []
    for _ in range(ROUNDS):
        decode.cache_clear()
        start = time.perf_counter()
        known = sum(decode(name) is not None for name in names)
        times.append(time.perf_counter() - start)

    length = sum(map(len, names)) / len(names)
    share = percent(known, len(names), fine=True)
    text = (
        "| names | mean length | decoded | seconds, median of 5 | least |\n"
        "|---:|---:|---:|---:|---:|\n"
        f"| {len(names):,} | {length:.0f} | {share} | {statistics.median(times):.2f} "
        f"| {min(times):.2f} |"
    )
    print(text)
    put(PAGE, "decode", text, __file__)


if __name__ == "__main__":
    main()
