"""Tries fusetui with hostile files: python -P tests/fuzz --seed 7 --runs 1000."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

KINDS = (
    "reader",
    "app",
    "large",
    "zip",
    "url",
    "terminal",
    "scrub",
    "nsys",
    "pftrace",
    "snapshot",
    "flight",
    "reproduce",
    "writing",
    "interrupt",
    "scanner",
)
HERE = Path(__file__).parent
sys.path[:] = [
    *(place for place in sys.path if place != str(HERE)),
    str(HERE.parents[1]),
]
# The root of the project comes last, so that none of its folders hides a module of
# Python.


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -P tests/fuzz", description=__doc__)
    parser.add_argument(
        "--seed", type=int, help="which inputs (default: others each time)"
    )
    parser.add_argument(
        "--runs", type=int, help="how many inputs (default: without end)"
    )
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first input"
    )
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes at once"
    )
    parser.add_argument("--kind", choices=KINDS, default="reader")
    parser.add_argument("--save", type=Path, help="folder for the inputs that fail")
    parser.add_argument(
        "--write", action="store_true", help="put the outcome into docs/safety.md"
    )
    args = parser.parse_args()

    from importlib import import_module

    from tests.fuzz.campaign import Plan, run, save_failures, say, write_row

    kind = import_module(f"tests.fuzz.{args.kind}").KIND
    seed = (
        args.seed if args.seed is not None else int.from_bytes(os.urandom(4), "little")
    )
    plan = Plan(seed, args.runs, args.seconds, args.jobs, args.first)
    say(f"seed {seed}")
    result = run(kind, plan)
    say(f"seed {seed}, {result}")
    if args.write:
        write_row(kind, plan, result, HERE.parents[1] / "docs" / "safety.md")
    folder = args.save or Path(tempfile.gettempdir()) / "fusetui-fuzz"
    save_failures(kind, plan, result, folder)
    return 1 if result.failed else 0


if __name__ == "__main__":
    sys.exit(main())
