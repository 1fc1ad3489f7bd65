"""Tries fusetui with hostile inputs: python -P fuzz --kind reader --seed 7 --runs 1000.

Each module that is named in KINDS makes inputs of one kind, gives them to fusetui and
judges the result. `campaign.py` runs them in processes of their own, counts what became
of them, and saves the smallest form of each failure.
"""

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
    "compile_log",
    "writing",
    "interrupt",
    "scanner",
)
FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent


def import_from_the_root() -> None:
    """Makes `fuzz` and `tests` importable, and takes the folder `fuzz` itself from
    sys.path, where its `zip.py` would hide names of Python. The root comes last, so
    that none of its folders hides an installed module."""
    others = [place for place in sys.path if place != str(FOLDER)]
    sys.path[:] = [*others, str(ROOT)]


def parser() -> argparse.ArgumentParser:
    """The arguments of the program."""
    options = argparse.ArgumentParser(prog="python -P fuzz", description=__doc__)
    options.add_argument(
        "--kind", choices=KINDS, default="reader", help="what to make (default: reader)"
    )
    options.add_argument(
        "--seed", type=int, help="which inputs (default: others each time)"
    )
    options.add_argument(
        "--runs", type=int, help="how many inputs (default: without end)"
    )
    options.add_argument(
        "--first", type=int, default=0, help="number of the first input"
    )
    options.add_argument("--seconds", type=float, help="stop after so long")
    options.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes at once"
    )
    options.add_argument("--save", type=Path, help="folder for the inputs that fail")
    options.add_argument(
        "--write", action="store_true", help="put the outcome into docs/safety.md"
    )
    return options


def main() -> int:
    """The exit code: 1 if an input failed, else 0."""
    args = parser().parse_args()
    # hostile files are none that the user of this machine opened recently
    os.environ["FUSETUI_KEPT"] = "off"
    import_from_the_root()

    from importlib import import_module

    from fuzz.campaign import Plan, run, save_failures, say, write_row

    kind = import_module(f"fuzz.{args.kind}").KIND
    seed = args.seed
    if seed is None:
        seed = int.from_bytes(os.urandom(4), "little")
    plan = Plan(
        seed=seed,
        count=args.runs,
        seconds=args.seconds,
        jobs=args.jobs,
        first=args.first,
    )
    say(f"seed {seed}")
    result = run(kind, plan)
    say(f"seed {seed}, {result}")
    if args.write:
        write_row(kind, plan, result, ROOT / "docs" / "safety.md")
    folder = args.save or Path(tempfile.gettempdir()) / "fusetui-fuzz"
    save_failures(kind, plan, result, folder)
    return 1 if result.failed else 0


if __name__ == "__main__":
    sys.exit(main())
