"""What the parts of the test suite cost: `make budget`, or for some parts
`python -P tests/budget.py tests/cli others`.

Each part runs in one process, without pytest-xdist, and its cost is what this process
and those that it started took of the processor: `user` and `sys`, which depend far less
than seconds of the clock on what else the machine does. Exit code 1: a part took more
than its budget; 2: its tests failed.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OTHERS = "others"
BUDGETS_S = {
    "tests/cli": 60,
    "tests/tui": 65,
    "tests/real": 100,
    "tests/analysis": 50,
    "tests/trace": 40,
    "tests/capture": 22,
    "tests/kernels": 17,
    "tests/attach": 6,
    "tests/fuzz": 22,
    OTHERS: 45,
}
"""Of each part, in seconds of the processor; CONTRIBUTING.md has the same table."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Measure what parts of the tests cost."
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(BUDGETS_S))
    parts = parser.parse_args().parts or [*BUDGETS_S]
    if unknown := {*parts} - {*BUDGETS_S}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    is_within = True
    print(f"{'part':<16} {'cost':>8} {'budget':>8}", flush=True)
    for part in parts:
        cost_s = measured_s(part)
        is_within &= cost_s <= BUDGETS_S[part]
        print(f"{part:<16} {cost_s:6.1f} s {BUDGETS_S[part]:6} s", flush=True)
    return 0 if is_within else 1


def measured_s(part: str) -> float:
    """The seconds of the processor that the tests of a part take."""
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:xdist"]
    # pytest keeps what it made of the assertions
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    before_s = spent_s()
    run = subprocess.run(
        [*command, *paths_of(part)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if run.returncode:
        print(run.stdout, file=sys.stderr)
        sys.exit(2)
    return spent_s() - before_s


def spent_s() -> float:
    """Of the processes that this one started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def paths_of(part: str) -> Sequence[str]:
    """The folder of a part; the others are all that is in no other part."""
    if part != OTHERS:
        return (part,)
    found = (
        path
        for path in (ROOT / "tests").iterdir()
        if path.match("test_*.py") or any(path.rglob("test_*.py"))
    )
    names = {path.relative_to(ROOT).as_posix() for path in found}
    return sorted(names - {*BUDGETS_S})


if __name__ == "__main__":
    sys.exit(main())
