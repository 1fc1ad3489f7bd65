"""The commands that make files: those that record programs, and those that write
traces, parts of them, pictures, reports and stacks to pass on."""

from __future__ import annotations

from argparse import REMAINDER, SUPPRESS, ArgumentTypeError, BooleanOptionalAction
from pathlib import Path
from typing import Any

from fusetui.command_line.arguments import (
    COMPILE_LOG,
    GRAPHS,
    LIGHT,
    NO_CACHE,
    OUT,
    PART,
    RANGE,
    STEP_BY,
    TRACE,
    Argument,
    Command,
    amount,
    argument,
    flag,
)


def seconds(text: str) -> float:
    """The type of an argument: a time in seconds."""
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"takes a number of seconds, not {text!r}") from None


def extras(text: str) -> list[str]:
    """The type of an argument: some of stack, shapes and memory; none for "none"."""
    if text == "none":
        return []
    names = text.split(",")
    for name in names:
        if name not in ("stack", "shapes", "memory"):
            raise ArgumentTypeError(
                f"takes stack, shapes, memory or none, not {name!r}"
            )
    return names


def size(text: str) -> tuple[int, int]:
    """The type of an argument: columns and lines."""
    columns, x, lines = text.partition("x")
    are_numbers = x and columns.isdecimal() and lines.isdecimal()
    if are_numbers and 40 <= int(columns) <= 500 and 10 <= int(lines) <= 500:
        return int(columns), int(lines)
    raise ArgumentTypeError(
        f"takes columns and lines from 40x10 to 500x500, not {text!r}"
    )


def pixels(text: str) -> int:
    """The type of an argument: the width of a picture."""
    width = int(text)
    if not 100 <= width <= 10_000:
        raise ArgumentTypeError(f"takes a number from 100 to 10000, not {text!r}")
    return width


def _of_capture() -> tuple[Argument, ...]:
    """What is not given is absent from the parsed arguments."""
    from fusetui.capture.options import declared_options

    out = "The run folder to write: a new one, or that of a sweep to continue."
    options = []
    for option in declared_options().values():
        if not option.flag:
            continue
        settings: dict[str, Any] = {"dest": option.name, "default": SUPPRESS}
        if option.kind is bool:
            may_be_off = bool(option.default)
            settings["action"] = BooleanOptionalAction if may_be_off else "store_true"
        else:
            settings["action"] = "append" if option.many else "store"
            settings["type"] = option.kind
        usage = f"{option.flag} {option.metavar}".rstrip()
        text = option.help.replace("%", "%%")  # argparse formats it
        options.append(argument(usage, text, **settings))
    return (
        argument("WORKLOAD", "mlp, linear, ... or your own file.py:build."),
        *options,
        argument("--out DIR", out, type=Path),
        flag(
            "--json", "Print what run.json holds, or sweep.json, instead of the table."
        ),
        flag("--open", "Open the result in the app; this needs a terminal."),
    )


PICTURED = ("timeline", "tree", "kernels", "diff", "why", "modules", "flame")
"""The pages of the app that `picture` draws."""
CUT = (
    *(*PART[:3], STEP_BY),
    argument(
        "--around ROW",
        "A slice, by its row, with the GPU events that it launched.",
        type=amount,
    ),
    flag("--steady", "The step of median wall time, the first left aside."),
    flag("--scrub", "Remove private data, as scrub does."),
    NO_CACHE,
)
RECORDED = (
    argument("--seconds S", "Record for this long, 0.5 by default.", type=seconds),
    argument("--steps N", "Record this many optimizer steps instead.", type=amount),
    argument(
        "--with WHAT",
        "stack, shapes or memory, several with commas between, or none; shapes by default.",
        dest="extras",
        type=extras,
        default=["shapes"],
    ),
    argument("--out DIR", "The folder of the traces.", type=Path),
    argument(
        "--open",
        "Open the traces in the app, in a terminal.",
        action=BooleanOptionalAction,
        default=True,
    ),
)
"""What is recorded of a program that runs, and where it goes."""
DUMPS = (
    flag(
        "--dumps",
        "Instead of a trace, dumps of the flight recorder of each rank: fusetui hang reads them.",
    ),
    argument(
        "--server ADDRESS",
        "With --dumps, the debug server of the job, http://localhost:25999 by default.",
    ),
)
"""Why a job hangs, not how long it takes."""
RECORDING = (
    Command(
        "capture",
        "Profile the variants of a workload and write a run folder.",
        _of_capture,
        "Shapes are options too, named as in the workload: --batch 32 --hidden 64. --expect may "
        'name a variant: --expect "eager: kernels=5". A sweep over several axes measures every '
        "combination; batch=64,128,...,2048 continues the progression, in_features=1024/n divides "
        "a total, and paper-batch is a predefined sweep.",
        open_ended=True,
    ),
    Command(
        "run",
        "Start a program and record a trace of it while it runs.",
        (
            argument(
                "--after S",
                "Record after this many seconds; by default, as soon as all processes have loaded "
                "torch. A trace without operations is recorded again.",
                type=seconds,
                default=0.0,
            ),
            flag(
                "--on-enter",
                "Record whenever Enter is pressed; the program has no input then.",
            ),
            flag(
                "--compile-log",
                "Have torch.compile write its log beside the traces, for fusetui compile; kernels "
                "are compiled once more for it.",
            ),
            *RECORDED,
            *DUMPS,
            argument("program -- COMMAND", "The program.", nargs=REMAINDER),
        ),
        "The program is not changed. It keeps its output and gets your signals. The exit code is "
        "the program's, or 1 if that is 0 and a process was not recorded. fusetui opens the trace "
        "when the program has ended. With --dumps, its ranks write their last collectives at a "
        "timeout of NCCL, and after --after S seconds: docs/hang.md.",
    ),
    Command(
        "record",
        "Record a trace of running programs.",
        (
            argument(
                "--pid PID", "One; may be repeated.", type=amount, action="append"
            ),
            argument(
                "--job NAME",
                "All of a job: its number in Slurm, its --rdzv-id of torchrun, or the name of "
                "its program, such as train.py.",
            ),
            flag("--all", "All your programs that accept it."),
            *RECORDED,
            *DUMPS,
        ),
        "The programs must have been started with KINETO_USE_DAEMON=1 (docs/attach.md). Several "
        "start together, and ranks opens their folder.",
    ),
    Command(
        "watch",
        "Open each new trace of a folder as it appears, beside the one before.",
        (argument("folder DIR", "The folder that traces are written to."),),
        "For changing and profiling in turn: press q in the app to wait for the next trace.",
    ),
)
SHARING = (
    Command(
        "scrub",
        "Write a copy of a trace without private data, to share it.",
        (TRACE, OUT),
        "Removes environment variables, tokens, names of hosts and users, command lines and "
        "folders; all figures stay exactly as they are.",
    ),
    Command(
        "cut",
        "Write a part of a trace as a trace of its own.",
        (TRACE, OUT, RANGE, *CUT),
        "GPU events stay whole and keep their launch calls with everything around them; CPU slices "
        "are clipped to the part. The figures are those of the whole trace for that time.",
    ),
    Command(
        "perfetto",
        "Write a part of a trace that Perfetto's page can open.",
        (TRACE, OUT, RANGE._replace(name="--at"), *CUT),
        "Like cut, for any format; ui.perfetto.dev opens the file without uploading it.",
    ),
    Command(
        "picture",
        "A page of the app as a picture: SVG, PNG or HTML.",
        (
            TRACE,
            argument("OTHER?", "A second trace, for the diff."),
            argument("OUT", "The new file, named .svg, .png or .html."),
            argument(
                "--page PAGE",
                f"Which one: {', '.join(PICTURED[:-1])} or {PICTURED[-1]}; by default the "
                "timeline, or the diff of two traces.",
                choices=PICTURED,
            ),
            *(*PART[:3], RANGE, STEP_BY, *LIGHT),
            argument(
                "--size COLUMNSxLINES",
                "The size of the page, 118x32 by default.",
                type=size,
                default=(118, 32),
            ),
            argument(
                "--pixels N",
                "The width of the picture; by default that of its text.",
                type=pixels,
                default=0,
            ),
            *(NO_CACHE, *GRAPHS),
        ),
        "Text in an SVG can be selected and searched; the file loads nothing and runs no script. "
        "PNG needs fusetui[picture]. docs/pictures.md has examples.",
    ),
    Command(
        "report",
        "One page for a browser: breakdown, findings, tables, timeline, and the diff of two.",
        (
            argument("A", "A trace."),
            argument("B?", "Another, to compare with the first."),
            argument("OUT", "The new file, named .html."),
            *(*LIGHT, COMPILE_LOG, NO_CACHE),
        ),
        "The page is self-contained and below 1 MB. Its figures are those of --json; click the "
        "head of a column to sort. By default it follows the browser's light or dark mode.",
    ),
    Command(
        "stacks",
        "Stacks of ops, modules or Python frames with their times, for other flame graphs.",
        (
            TRACE,
            argument("OUT?", "A new file; by default, printed."),
            argument(
                "--of WHAT",
                "ops, modules or python, as on the app's flame page.",
                choices=("ops", "modules", "python"),
                default="ops",
            ),
            argument(
                "--time WHICH",
                "Time on the gpu that they launched, or on the cpu; by default the GPU, if there "
                "is any.",
                choices=("gpu", "cpu"),
            ),
            flag(
                "--folded", "A line for each stack, `a;b;c 1200`, in ns; the default."
            ),
            flag(
                "--speedscope",
                "A file of www.speedscope.app, which draws it in your browser.",
            ),
            *(NO_CACHE, *GRAPHS),
        ),
        "flamegraph.pl, inferno and many others read folded stacks. docs/pictures.md has examples.",
    ),
    Command(
        "convert",
        "Write a trace of any format as the JSON of torch.profiler.",
        (TRACE, OUT),
        "The result has everything in the trace, to the nanosecond, and opens in Perfetto and "
        "others.",
    ),
)
