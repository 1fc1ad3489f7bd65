"""The arguments of the commands that record programs which run."""

from __future__ import annotations

from argparse import REMAINDER, ArgumentTypeError, BooleanOptionalAction
from pathlib import Path

from fusetui.arguments import amount, argument, flag


def seconds(text: str) -> float:
    """The type of an argument: a time in seconds."""
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"takes a number of seconds, not {text!r}") from None


def extras(text: str) -> list[str]:
    """The type of an argument: some of stack, shapes and memory; none for "none"."""
    given = [] if text == "none" else text.split(",")
    if wrong := [one for one in given if one not in ("stack", "shapes", "memory")]:
        raise ArgumentTypeError(f"takes stack, shapes, memory or none, not {wrong[0]!r}")
    return given


RECORDED = (
    argument("--seconds", metavar="S", type=seconds, help="Record this long, 0.5 by default."),
    argument("--steps", metavar="N", type=amount, help="Record this many optimizer steps instead."),
    argument(
        "--with",
        dest="extras",
        metavar="WHAT",
        type=extras,
        default=["shapes"],
        help="stack, shapes or memory, several with commas between, or none; shapes by default.",
    ),
    argument("--out", metavar="DIR", type=Path, help="The folder of the traces."),
    argument(
        "--open",
        action=BooleanOptionalAction,
        default=True,
        help="Open the traces in the app, in a terminal.",
    ),
)
"""What is recorded of a program that runs, and where it goes."""
RUN = (
    argument(
        "--after",
        metavar="S",
        type=seconds,
        default=0.0,
        help="Record once this many seconds have passed; by default, as soon as torch is "
        "loaded and a few seconds have passed.",
    ),
    flag("--on-enter", "Record whenever Enter is pressed; the program has no input then."),
    *RECORDED,
    argument("program", metavar="-- COMMAND", nargs=REMAINDER, help="The program."),
)
RECORD = (
    argument("--pid", metavar="PID", type=amount, action="append", help="One; may be repeated."),
    argument(
        "--job",
        metavar="NAME",
        help="All of a job: its number in Slurm, its --rdzv-id of torchrun, or the name of "
        "its program, such as train.py.",
    ),
    flag("--all", "All of yours that can be."),
    *RECORDED,
)
