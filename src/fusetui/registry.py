"""All commands. NAME is carried out by `run_NAME(args)` of `commands/NAME.py`, or of the module in
arguments.MODULES, which is imported when it runs. Parsers, help and reference are made from this.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from pathlib import Path

from fusetui.arguments import (
    ASCII,
    FAIL_OVER,
    GRAPHS,
    JSON,
    KERNELS_BY,
    MEMORY,
    MODEL,
    MOUSE,
    NO_CACHE,
    OPS_BY,
    PART,
    PEAK,
    RANKS,
    SHELLS,
    STEP_BY,
    TABLE,
    THEME,
    TOLD,
    TOP,
    TRACE,
    WORTH,
    Argument,
    Command,
    argument,
    by,
    flag,
    option,
)
from fusetui.sharing import SHARED


def _of_capture() -> tuple[Argument, ...]:
    """The options of the measurement are declared in `Options`; the others are added here."""
    from fusetui.capture.options import declared

    out = "The run folder to write: a new one, or that of a sweep to continue."
    options = (option(one) for one in declared().values() if one.flag)
    return (
        argument(
            "workload", metavar="WORKLOAD", help="mlp, linear, ... or your own file.py:build."
        ),
        *options,
        argument("--out", metavar="DIR", type=Path, help=out),
        flag("--open", "Open the result in the app; this needs a terminal."),
    )


def _of_recording(name: str) -> tuple[Argument, ...]:
    found: tuple[Argument, ...] = getattr(import_module("fusetui.recording_arguments"), name)
    return found


ANSWER = (TRACE, JSON, NO_CACHE, *GRAPHS)
COMMANDS = (
    Command(
        "capture",
        "Profile the variants of a workload and write a run folder.",
        _of_capture,
        "Shapes are options too, named as in the workload: --batch 32 --hidden 64. A guess may be "
        'about one variant: --expect "eager: kernels=5". A sweep over several axes measures every '
        "combination; batch=64,128,...,2048 continues the progression, in=1024/n divides a total, "
        "and paper-batch is a predefined sweep.",
        open_ended=True,
    ),
    Command(
        "run",
        "Start a program, and record a trace of it while it runs.",
        partial(_of_recording, "RUN"),
        "The program is not changed. It keeps its output, gets your signals, and its exit code is "
        "that of this command. Once it has ended, its trace is opened.",
    ),
    Command(
        "record",
        "Record a trace of programs that run already.",
        partial(_of_recording, "RECORD"),
        "They must have been started with KINETO_USE_DAEMON=1: docs/attach.md. Several begin "
        "together, and ranks opens their folder.",
    ),
    Command(
        "watch",
        "Open each new trace of a folder as it appears, beside the one before.",
        (argument("folder", metavar="DIR", help="The folder that traces are written to."),),
        "For changing and profiling in turn: leave the app with q to wait for the next.",
    ),
    Command(
        "tutor",
        "A guided tour of the app, in five minutes.",
        (ASCII, THEME, MOUSE),
        "It opens lesson:mlp-eager and asks you to do one thing at a time.",
    ),
    Command(
        "open",
        "Browse a trace, or two side by side, or choose from several.",
        (
            argument(
                "traces",
                metavar="TRACE",
                nargs="*",
                default=[],
                help="A trace, a run folder, a folder of runs, sample:NAME or lesson:NAME; two are "
                "shown side by side, of more you choose. Or one or two memory snapshots.",
            ),
            argument(
                "--memory",
                metavar="SNAPSHOT",
                action="append",
                default=[],
                help="A memory snapshot of the same run, to show beside the trace.",
            ),
            *(ASCII, THEME, MOUSE, *GRAPHS, NO_CACHE),
        ),
        "`fusetui TRACE` does the same. Without a trace, you choose from the newest traces and "
        "runs in this folder, the lessons and the samples.",
    ),
    Command("summary", "Key figures of the whole trace: times, counts, steps, lanes.", ANSWER),
    Command(
        "kernels",
        "The kernels grouped by name, op, shape and so on, the largest total first.",
        (*ANSWER, TOP, by(*KERNELS_BY), PEAK, MODEL, *TABLE),
        "If shapes were recorded, also shows the FLOP and bytes of the work, and the share of the "
        "device's peak.",
    ),
    Command(
        "ops",
        "The CPU ops by name or shape, with the GPU time launched under each.",
        (*ANSWER, TOP, by(*OPS_BY), *TABLE),
    ),
    Command(
        "modules",
        "The tree of modules and annotations, with the GPU time of each.",
        (
            *ANSWER,
            TOP,
            flag("--expand", "Keep module indices: Linear_3 instead of Linear_*."),
            *TABLE,
        ),
        "Backward work belongs to the module of its forward op. Module names need recorded stacks "
        "(with_stack=True); annotations are those of record_function.",
    ),
    Command(
        "lines",
        "Your Python functions, with the CPU and GPU time of each.",
        (
            *ANSWER,
            TOP,
            argument(
                "--file",
                metavar="PATH",
                help="The functions of this file or folder, instead of those of your own code.",
            ),
            by("function", "line"),
            *TABLE,
        ),
        "Time spent in library functions counts for your function that called them. Stacks must "
        "have been recorded (with_stack=True); torch 2.14 and later record the calling lines for "
        "--by line.",
    ),
    Command(
        "whatif",
        "What a change would be worth: the trace is replayed with it.",
        (
            TRACE,
            argument(
                "changes",
                metavar="CHANGE",
                nargs="*",
                default=[],
                help="kernel:PATTERN x0.5, family:gemm x0.8, kernel:PATTERN 40us, op:PATTERN x0, "
                "module:PATTERN x0, python x0.5, fuse, graph, no-sync:PATTERN, loader, comm x0, "
                "overlap, device=NAME, ...; all of them are made together.",
            ),
            PART[0],
            argument(
                "--steps",
                choices=("median", "all"),
                default="median",
                help="all lists every step beside the median.",
            ),
            argument(
                "--sweep",
                metavar="CHANGE",
                help="One change at ten factors, as in 'kernel:attn x0.1..1': from where on it no "
                "longer helps.",
            ),
            *(JSON, NO_CACHE, *GRAPHS),
        ),
        "docs/whatif.md has all changes, how the replay works, and how far it can be trusted.",
    ),
    Command(
        "path",
        "The critical path of a trace, and what could take longer without moving the end.",
        ANSWER,
    ),
    Command(
        "launches",
        "The launch calls of each thread, replays of graphs, and the launch queue.",
        (*ANSWER, TOP, *TABLE),
        "As a table, the launch calls alone.",
    ),
    Command(
        "steps",
        "The steps, with the kernels that each launched.",
        (TRACE, NO_CACHE, *GRAPHS, TOP, *TABLE),
    ),
    Command(
        "slices",
        "All slices of a trace, each with its lane, its op and its step.",
        (TRACE, NO_CACHE, *GRAPHS, TOP, *TABLE),
        "For example every GEMM longer than 50 us: --where 'family = gemm and dur > 50us'.",
    ),
    Command(
        "sql",
        "Ask the tables of traces in SQL (DuckDB).",
        (
            TRACE,
            argument(
                "others",
                metavar="QUERY",
                nargs="*",
                default=[],
                help="More traces, and a SELECT: it holds a space and names no file. Without one, "
                "queries are asked for in a terminal, or read from standard input.",
            ),
            *(NO_CACHE, *GRAPHS, TOP, *TABLE[1:3]),
        ),
        'For example "select family, sum(total_ns) as total_ns from kernels group by family". '
        "docs/sql.md has recipes, and docs/tables.md all tables and columns.",
    ),
    Command(
        "serving",
        "Steps of vLLM and SGLang: phases, layers, the time between, and the least they can take.",
        (
            *ANSWER,
            argument(
                "--model-config",
                metavar="FILE",
                help="The config.json of the model, for its keys and values, and if it is dense "
                "its weights, where no recorded shapes tell them.",
            ),
            PEAK,
            MODEL,
        ),
        "The least time of a step is that of reading its weights, keys and values once and of "
        "computing its products, at the peaks of the device. docs/serving.md explains it.",
    ),
    Command(
        "diff",
        "What B does differently from A: what was fused, added, removed, slower or faster.",
        (
            argument("a", metavar="A", help="The baseline: a trace, or a folder of traces."),
            argument("b", metavar="B", nargs="?", help="The other; not needed for a run folder."),
            argument(
                "--baseline",
                metavar="VARIANT",
                help="In a run folder, the variant that the others are compared with.",
            ),
            STEP_BY,
            JSON,
            flag("--markdown", "Print Markdown, for a report."),
            *FAIL_OVER,
            NO_CACHE,
        ),
        "Files of the same name in two folders are compared with each other; in a run folder, "
        "every variant is compared with the first.",
    ),
    Command(
        "why",
        "Where the time went, and why the GPU was idle.",
        (
            TRACE,
            argument(
                "other",
                metavar="OTHER",
                nargs="?",
                help="A second trace, to show what differs in each class of time.",
            ),
            *PART,
            *WORTH,
            JSON,
            flag("--markdown", "Print Markdown, for a pull request."),
            NO_CACHE,
            *GRAPHS,
        ),
        "Compute, exposed communication, exposed copies and idle time add up to the time asked "
        "about, exactly; the reasons add up to the idle time. docs/why.md explains each.",
    ),
    Command(
        "gaps",
        "The longest gaps in which a GPU was idle, and what it waited for.",
        (TRACE, *PART, JSON, NO_CACHE, *GRAPHS, TOP, *TABLE),
        "As a table, all gaps.",
    ),
    Command(
        "memory",
        "Who holds the memory of a GPU, at the peak or when it ran out.",
        MEMORY,
        "Bytes are those asked for, of a trace those of blocks; docs/memory.md explains them.",
    ),
    Command(
        "ranks",
        "Many traces of one job: which rank is late, and who waits for it.",
        RANKS,
        "Each trace is summarized once, by as many processes as cores and memory allow; the "
        "summaries are kept, so that the next question reads no trace. docs/ranks.md explains the "
        "figures.",
    ),
    *SHARED,
    Command(
        "decode",
        "Explain kernel names, part by part.",
        (argument("names", metavar="NAME", nargs="+", help="Kernel names; - reads stdin."), JSON),
    ),
    Command(
        "check",
        "Check a guess about the number of kernels; exit with 1 if it is wrong.",
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
            *TOLD,
        ),
    ),
    Command(
        "mcp",
        "Answer agents: a server of the Model Context Protocol on stdin and stdout.",
        (
            argument(
                "--allow",
                metavar="FOLDER",
                nargs="+",
                action="extend",
                default=[],
                help="The folders whose traces it may read, by default the current one.",
            ),
        ),
        "It reads files below these folders, the lessons and the samples; it opens no URL. "
        "docs/agents.md has its tools and how to register it.",
    ),
    Command("samples", "The traces that ship with fusetui.", (JSON,)),
    Command(
        "schema",
        "The JSON Schema of what a command prints with --json.",
        (argument("of", metavar="COMMAND", help="For example summary."),),
    ),
    Command(
        "help",
        "Print a page of the documentation, or list them.",
        (argument("topic", metavar="TOPIC", nargs="?", help="A page, or a command."),),
    ),
    Command(
        "completion",
        "Print a script that completes fusetui in your shell.",
        (argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish."),),
        "For bash, write it to ~/.local/share/bash-completion/completions/fusetui; for zsh, to a "
        "file named _fusetui in a folder of $fpath; for fish, to "
        "~/.config/fish/completions/fusetui.fish.",
    ),
)


def command(name: str) -> Command:
    """The command of that name. Raises KeyError if there is none."""
    return {one.name: one for one in COMMANDS}[name]
