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
    """Return the time in seconds that a value of the command line means. Raises
    ArgumentTypeError for what is no number."""
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"takes a number of seconds, not {text!r}") from None


def extras(text: str) -> list[str]:
    """Return what to record beside times: some of stack, shapes and memory, or nothing
    for "none". Raises ArgumentTypeError for any other word."""
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
    """Return the columns and lines of a size such as `118x32`. Raises ArgumentTypeError
    unless it is from 40x10 to 500x500."""
    columns_text, _, lines_text = text.partition("x")
    if columns_text.isdecimal() and lines_text.isdecimal():
        columns = int(columns_text)
        lines = int(lines_text)
        if 40 <= columns <= 500 and 10 <= lines <= 500:
            return columns, lines
    raise ArgumentTypeError(
        f"takes columns and lines from 40x10 to 500x500, not {text!r}"
    )


def pixels(text: str) -> int:
    """Return the width of a picture in pixels. Raises ArgumentTypeError unless it is
    from 100 to 10,000, and ValueError for what is no number."""
    width = int(text)
    if not 100 <= width <= 10_000:
        raise ArgumentTypeError(f"takes a number from 100 to 10000, not {text!r}")
    return width


def _make_capture_arguments() -> tuple[Argument, ...]:
    """Return the arguments of `capture`, made from the declared options. An option that
    is not given is absent from the parsed arguments, so that its declared default
    holds."""
    from fusetui.capture.options import declared_options

    options = []
    for option in declared_options().values():
        if not option.flag:  # it can only be set in a file
            continue
        settings: dict[str, Any] = {"dest": option.name, "default": SUPPRESS}
        if option.kind is not bool:
            settings["action"] = "append" if option.many else "store"
            settings["type"] = option.kind
        elif option.default:  # --no-... turns it off
            settings["action"] = BooleanOptionalAction
        else:
            settings["action"] = "store_true"
        usage = f"{option.flag} {option.metavar}".rstrip()
        text = option.help.replace("%", "%%")  # argparse formats it
        options.append(argument(usage, text, **settings))
    return (
        argument(
            "WORKLOAD", "The workload: mlp, linear, ... or your own file.py:build."
        ),
        *options,
        argument(
            "--out DIR",
            "The run folder to write: a new one, or that of a sweep to continue.",
            type=Path,
        ),
        flag(
            "--json",
            "Print the content of run.json or sweep.json instead of the table.",
        ),
        flag("--open", "Open the result in the app; this needs a terminal."),
    )


PICTURED = ("timeline", "tree", "kernels", "diff", "why", "modules", "flame")
"""The pages of the app that `picture` draws."""
CUT = (
    *(*PART[:3], STEP_BY),
    argument(
        "--around ROW",
        "Keep the slice in this row and the GPU events that it launched.",
        type=amount,
    ),
    flag(
        "--steady",
        "Keep the step with the median wall time, excluding the first step.",
    ),
    flag("--scrub", "Remove private data, as scrub does."),
    NO_CACHE,
)
RECORDED = (
    argument(
        "--seconds S", "Record for this many seconds, 0.5 by default.", type=seconds
    ),
    argument("--steps N", "Record this many optimizer steps instead.", type=amount),
    argument(
        "--with WHAT",
        "What to record: stack, shapes and memory, separated by commas, or none. The default "
        "is shapes.",
        dest="extras",
        type=extras,
        default=["shapes"],
    ),
    argument("--out DIR", "Write the traces to this folder.", type=Path),
    argument(
        "--open",
        "Open the traces in the app; this needs a terminal.",
        action=BooleanOptionalAction,
        default=True,
    ),
)
"""What is recorded of a program that runs, and where it goes."""
DUMPS = (
    flag(
        "--dumps",
        "Take a flight-recorder dump of each rank, for fusetui hang, instead of a trace.",
    ),
    argument(
        "--server ADDRESS",
        "With --dumps, the debug server of the job; http://localhost:25999 by default.",
    ),
)
"""Why a job hangs, not how long it takes."""
RECORDING = (
    Command(
        "capture",
        "Profile the variants of a workload and write a run folder.",
        _make_capture_arguments,
        "The shapes of the workload are also options: --batch 32 --hidden 64. --expect may "
        'refer to a variant: --expect "eager: kernels=5". A sweep over several axes measures '
        "every combination; batch=64,128,...,2048 continues the progression, "
        "in_features=1024/n divides a total, and paper-batch is a predefined sweep.",
        open_ended=True,
    ),
    Command(
        "run",
        "Start a program and record a trace while it runs.",
        (
            argument(
                "--after S",
                "Record after this many seconds; by default, record when all processes have "
                "loaded torch. If a trace has no operations, fusetui records again.",
                type=seconds,
                default=0.0,
            ),
            flag(
                "--on-enter",
                "Record whenever you press Enter; the program then has no input.",
            ),
            flag(
                "--compile-log",
                "Make torch.compile write its log next to the traces, for fusetui "
                "compile. torch then compiles all kernels again.",
            ),
            *RECORDED,
            *DUMPS,
            argument(
                "program -- COMMAND", "The program and its arguments.", nargs=REMAINDER
            ),
        ),
        "The program runs unchanged, prints its output as usual and receives your signals. The "
        "exit code is that of the program, or 1 if the program succeeds but a process was not "
        "recorded. fusetui opens the trace when the program has ended. With --dumps, the ranks "
        "write their last collectives when NCCL times out, or after --after S seconds. See "
        "docs/hang.md.",
    ),
    Command(
        "record",
        "Record a trace of running programs.",
        (
            argument(
                "--pid PID",
                "Record this process; may be repeated.",
                type=amount,
                action="append",
            ),
            argument(
                "--job NAME",
                "Record all processes of the job with this Slurm number, torchrun "
                "--rdzv-id, or program name, such as train.py.",
            ),
            flag("--all", "Record all your programs that accept on-demand profiling."),
            *RECORDED,
            *DUMPS,
        ),
        "The programs must have been started with KINETO_USE_DAEMON=1 (see docs/attach.md). "
        "The recordings of several programs start together, and fusetui ranks opens their "
        "folder.",
    ),
    Command(
        "watch",
        "Open each new trace in a folder as it appears, next to the previous one.",
        (argument("folder DIR", "The folder to which your program writes traces."),),
        "Use this command while you change and profile a program. Press q in the app to wait "
        "for the next trace.",
    ),
)
SHARING = (
    Command(
        "scrub",
        "Write a copy of a trace without private data, for sharing.",
        (TRACE, OUT),
        "The command removes environment variables, tokens, host and user names, command lines "
        "and folders. All figures stay exactly the same.",
    ),
    Command(
        "cut",
        "Write a part of a trace to a new file.",
        (TRACE, OUT, RANGE, *CUT),
        "The new file contains whole GPU events, their launch calls, and everything "
        "around these calls; CPU slices are clipped. Figures for that time are the "
        "same as in the whole trace.",
    ),
    Command(
        "perfetto",
        "Write a part of a trace for the Perfetto web page.",
        (TRACE, OUT, RANGE._replace(name="--at"), *CUT),
        "This command works like cut, but accepts any format. ui.perfetto.dev opens the file without "
        "uploading it.",
    ),
    Command(
        "picture",
        "Save a page of the app as a picture: SVG, PNG or HTML.",
        (
            TRACE,
            argument("OTHER?", "A second trace, for the diff."),
            argument("OUT", "The new file, named .svg, .png or .html."),
            argument(
                "--page PAGE",
                f"The page: {', '.join(PICTURED[:-1])} or {PICTURED[-1]}; by default the "
                "timeline, or the diff of two traces.",
                choices=PICTURED,
            ),
            *(*PART[:3], RANGE, STEP_BY, *LIGHT),
            argument(
                "--size COLUMNSxLINES",
                "The size of the page in characters, 118x32 by default.",
                type=size,
                default=(118, 32),
            ),
            argument(
                "--pixels N",
                "The width of the picture; by default, the width of its text.",
                type=pixels,
                default=0,
            ),
            *(NO_CACHE, *GRAPHS),
        ),
        "You can select and search the text in an SVG. The file loads nothing and runs no "
        "scripts. PNG needs fusetui[picture]. docs/pictures.md has examples.",
    ),
    Command(
        "report",
        "Write a page for the browser: breakdown, findings, tables, timeline, and a diff of "
        "two traces.",
        (
            argument("A", "A trace."),
            argument("B?", "A second trace, to compare with the first."),
            argument("OUT", "The new file, named .html."),
            *(*LIGHT, COMPILE_LOG, NO_CACHE),
        ),
        "The page is self-contained and smaller than 1 MB. Its figures are those of --json. "
        "Click a column heading to sort. By default, the page follows the browser's light or "
        "dark mode.",
    ),
    Command(
        "stacks",
        "Write stacks of ops, modules or Python frames with their times, for flame graph "
        "tools.",
        (
            TRACE,
            argument(
                "OUT?", "The new file; by default, the command prints the stacks."
            ),
            argument(
                "--of WHAT",
                "The kind of stacks: ops, modules or python, as on the app's flame page.",
                choices=("ops", "modules", "python"),
                default="ops",
            ),
            argument(
                "--time WHICH",
                "Use the GPU time that the code launched (gpu), or its CPU time "
                "(cpu). The default is gpu if the trace has a GPU.",
                choices=("gpu", "cpu"),
            ),
            flag(
                "--folded",
                "Write one line per stack, `a;b;c 1200`, in ns. This is the default.",
            ),
            flag(
                "--speedscope",
                "Write a file for www.speedscope.app, which draws it in your browser.",
            ),
            *(NO_CACHE, *GRAPHS),
        ),
        "flamegraph.pl, inferno and many others read folded stacks. docs/pictures.md has examples.",
    ),
    Command(
        "convert",
        "Convert a trace of any format to the JSON of torch.profiler.",
        (TRACE, OUT),
        "The result contains everything in the trace, exact to the nanosecond. Perfetto and "
        "other programs can open it.",
    ),
)
