"""All commands. The one called NAME is answered by `run(args)` of `commands/NAME.py`, which is
imported when it runs; the parsers, the help and the reference are made from this table.
"""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from fusetui.arguments import (
    JSON,
    KERNELS_BY,
    NO_CACHE,
    OPS_BY,
    PART,
    TOP,
    TRACE,
    Argument,
    argument,
    at_least_zero,
    by,
    flag,
    option,
)


class Command(NamedTuple):
    """`help` is one line, `more` what its own help adds to that.

    `arguments` may be a function, for what takes time to import: it is called when the command is
    what is wanted. `open_ended`: what the parser does not know is not wrong, but for the command to
    judge; it is in `args.rest`.
    """

    name: str
    help: str
    arguments: tuple[Argument, ...] | Callable[[], tuple[Argument, ...]]
    more: str = ""
    open_ended: bool = False

    def add_to(self, parser: ArgumentParser) -> None:
        """Adds the arguments."""
        arguments = self.arguments() if callable(self.arguments) else self.arguments
        for one in arguments:
            parser.add_argument(*one.names, **one.settings)

    def run(self, args: Namespace) -> int:
        """The exit code."""
        code: int = import_module(f"fusetui.commands.{self.name}").run(args)
        return code


def _of_capture() -> tuple[Argument, ...]:
    """What is measured is declared with `Options`; here is of what, and what becomes of it."""
    from fusetui.capture.options import declared

    out = "The run folder to write: a new one, or that of a sweep to go on with."
    options = (option(one) for one in declared().values() if one.asked.flag)
    return (
        argument(
            "workload", metavar="WORKLOAD", help="mlp, linear, ... or your own file.py:build."
        ),
        *options,
        argument("--out", metavar="DIR", type=Path, help=out),
        flag("--open", "Open the result; this needs a terminal."),
    )


COMMANDS = (
    Command(
        "capture",
        "Profile the variants of a workload and write a run folder.",
        _of_capture,
        "Shapes are options too, by the names of the workload: --batch 32 --hidden 64. A guess may "
        'be for one variant: --expect "eager: kernels=5". A sweep over several axes measures every '
        "combination; batch=64,128,...,2048 goes on as it began, and paper-batch is the name of "
        "one.",
        open_ended=True,
    ),
    Command(
        "open",
        "Browse a trace, or two side by side.",
        (
            argument(
                "trace", metavar="TRACE", help="A trace, a run folder, sample:NAME or lesson:NAME."
            ),
            argument("other", metavar="OTHER", nargs="?", help="A second one, side by side."),
            flag("--ascii", "Draw with ASCII only."),
            argument(
                "--mouse", action=BooleanOptionalAction, help="Let the app see the mouse, or not."
            ),
            NO_CACHE,
        ),
    ),
    Command(
        "summary",
        "The figures of a whole trace: times, counts, steps, lanes.",
        (TRACE, JSON, NO_CACHE),
    ),
    Command(
        "kernels",
        "The kernels by name or by what else they have in common, the largest total first.",
        (
            TRACE,
            JSON,
            NO_CACHE,
            TOP,
            by(*KERNELS_BY),
            argument(
                "--peak",
                metavar="KIND=FIGURE",
                action="append",
                default=[],
                help="FLOP/s of the device, or bytes/s as bandwidth=3.35e12; may be repeated.",
            ),
        ),
        "With recorded shapes also what their work needed: FLOP, bytes, and the share of the "
        "device's peak.",
    ),
    Command(
        "ops",
        "The CPU ops by name or shapes, with the GPU time launched under each.",
        (TRACE, JSON, NO_CACHE, TOP, by(*OPS_BY)),
    ),
    Command(
        "modules",
        "The tree of modules and annotations, with the GPU time of each.",
        (
            TRACE,
            JSON,
            NO_CACHE,
            TOP,
            flag("--expand", "Keep the indices of modules apart: Linear_3, not Linear_*."),
        ),
        "Backward work belongs to the module of its forward op. Modules have names where stacks "
        "were recorded (with_stack=True), annotations are those of record_function.",
    ),
    Command(
        "lines",
        "Your Python functions, with the CPU and GPU time of each.",
        (
            TRACE,
            JSON,
            NO_CACHE,
            TOP,
            argument(
                "--file",
                metavar="PATH",
                help="The functions of this file or folder, whoever wrote it, instead of your own.",
            ),
        ),
        "What library functions do counts for the function of yours that called them. Stacks must "
        "have been recorded (with_stack=True).",
    ),
    Command(
        "launches",
        "The calls that launch GPU work by thread, CUDA graph replays, and the launch queue.",
        (TRACE, JSON, NO_CACHE),
    ),
    Command(
        "diff",
        "What B does differently from A: what was fused, added, removed, slower or faster.",
        (
            argument("a", metavar="A", help="The trace to compare with."),
            argument("b", metavar="B", nargs="?", help="The other; a run folder A has all."),
            argument(
                "--baseline",
                metavar="VARIANT",
                help="Of a run folder: what the others are compared with.",
            ),
            JSON,
            flag("--markdown", "A table for a report."),
            argument(
                "--fail-over",
                metavar="PERCENT",
                type=at_least_zero(float),
                help="Exit 1 if B's step is slower by more, beyond noise; 3 if that cannot be "
                "told.",
            ),
            NO_CACHE,
        ),
        "Two folders are compared by the names of their files; of one run folder, every variant "
        "with the first.",
    ),
    Command(
        "why",
        "What the time went to, and why the GPU was idle.",
        (
            TRACE,
            argument(
                "other",
                metavar="OTHER",
                nargs="?",
                help="A second trace: what differs, class by class.",
            ),
            *PART,
            JSON,
            flag("--markdown", "For a pull request."),
            NO_CACHE,
        ),
        "Compute, communication and copies that nothing hides, and idle time add up to the time "
        "asked about, exactly; so do the reasons to the idle time. docs/why.md explains each.",
    ),
    Command(
        "gaps",
        "The longest stretches in which a GPU was idle, and what it waited for.",
        (TRACE, *PART, JSON, NO_CACHE),
    ),
    Command(
        "scrub",
        "Write a trace anew without what is private, to share it.",
        (
            TRACE,
            argument(
                "out", metavar="OUT", help="The new file: .json, .json.gz or .json.zst by its name."
            ),
        ),
        "Environment variables, tokens, the names of hosts and users, command lines and folders "
        "go; figures stay exactly as they are.",
    ),
    Command(
        "decode",
        "Explain kernel names, part by part.",
        (argument("names", metavar="NAME", nargs="+", help="Names; - reads stdin."), JSON),
    ),
    Command(
        "check",
        "Guess first, then look: exit 1 when the trace's kernels differ.",
        (
            TRACE,
            JSON,
            NO_CACHE,
            argument(
                "--expect",
                metavar="GUESS",
                required=True,
                help='For example "kernels=5 gemm=3 pointwise=2".',
            ),
        ),
    ),
    Command("samples", "The traces that ship with fusetui.", (JSON,)),
)


def command(name: str) -> Command:
    """Raises KeyError."""
    return {one.name: one for one in COMMANDS}[name]
