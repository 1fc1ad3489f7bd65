"""All commands. NAME is carried out by `run_NAME(args)` of `commands/NAME.py`, or of
the module in arguments.MODULES, which is imported when it runs. Parsers, help and
reference are made from this.
"""

from __future__ import annotations

from argparse import BooleanOptionalAction

from fusetui.command_line.arguments import (
    COMPILE_LOG,
    GRAPHS,
    JSON,
    KERNELS_BY,
    LOOK,
    NO_CACHE,
    OPS_BY,
    PART,
    PEAKS,
    STEP_BY,
    TABLE,
    TOLD,
    TOP,
    TRACE,
    Command,
    amount,
    argument,
    by,
    flag,
    share,
)
from fusetui.command_line.file_commands import RECORDING, SHARING

ANSWER = (TRACE, JSON, NO_CACHE, *GRAPHS)
COMMANDS = (
    *RECORDING,
    Command(
        "tutor",
        "A guided tour of the app, in five minutes.",
        LOOK,
        "It opens lesson:mlp-eager and asks you to do one thing at a time.",
    ),
    Command(
        "open",
        "Browse a trace, or two side by side, or choose from several.",
        (
            argument(
                "traces TRACE*",
                "A trace, a run folder, a folder of runs, sample:NAME or lesson:NAME; two are "
                "shown side by side, of more you choose. Or one or two memory snapshots.",
            ),
            argument(
                "--memory SNAPSHOT*",
                "A memory snapshot of the same run, to show beside the trace.",
            ),
            *(*LOOK, *GRAPHS, COMPILE_LOG, NO_CACHE),
        ),
        "`fusetui TRACE` does the same. Without a trace, you choose from the newest traces and "
        "runs in this folder, the lessons and the samples.",
    ),
    Command(
        "summary",
        "Key figures of the whole trace: times, counts, steps, lanes.",
        ANSWER,
    ),
    Command(
        "kernels",
        "The kernels grouped by name, op, shape and so on, the largest total first.",
        (*ANSWER, COMPILE_LOG, TOP, by(*KERNELS_BY), *PEAKS, *TABLE),
        "If shapes were recorded, also shows the FLOP and bytes of the work, and the share of the "
        "device's peak.",
    ),
    Command(
        "ops",
        "The CPU ops by name or shape, with the GPU time launched under each.",
        (*ANSWER, COMPILE_LOG, TOP, by(*OPS_BY), *TABLE),
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
            COMPILE_LOG,
            TOP,
            argument(
                "--file PATH",
                "The functions of this file or folder, instead of those of your own code.",
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
                "changes CHANGE*",
                "kernel:PATTERN x0.5, family:gemm x0.8, kernel:PATTERN 40us, op:PATTERN x0, "
                "module:PATTERN x0, python x0.5, fuse, graph, no-sync:PATTERN, loader, comm x0, "
                "overlap, device=NAME, ...; all of them are made together.",
            ),
            PART[0],
            argument(
                "--steps",
                "all lists every step beside the median.",
                choices=("median", "all"),
                default="median",
            ),
            argument(
                "--sweep CHANGE",
                "One change at ten factors, as in 'kernel:attn x0.1..1': from where on it no "
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
        (*ANSWER, TOP, *TABLE),
    ),
    Command(
        "slices",
        "All slices of a trace, each with its lane, its op and its step.",
        (*ANSWER, TOP, *TABLE),
        "For example every GEMM longer than 50 us: --where 'family = gemm and dur > 50us'.",
    ),
    Command(
        "sql",
        "Ask the tables of traces in SQL (DuckDB).",
        (
            TRACE,
            argument(
                "others QUERY*",
                "More traces, and a SELECT: it holds a space and names no file. Without one, "
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
                "--model-config FILE",
                "The config.json of the model, for its keys and values, and if it is dense "
                "its weights, where no recorded shapes tell them.",
            ),
            *PEAKS,
        ),
        "The least time of a step is that of reading its weights, keys and values once and of "
        "computing its products, at the peaks of the device. docs/serving.md explains it.",
    ),
    Command(
        "diff",
        "What B does differently from A: what was fused, added, removed, slower or faster.",
        (
            argument("A", "The baseline: a trace, or a folder of traces."),
            argument("B?", "The other; not needed for a run folder."),
            argument(
                "--baseline VARIANT",
                "In a run folder, the variant that the others are compared with.",
            ),
            STEP_BY,
            JSON,
            flag("--markdown", "Print Markdown, for a report."),
            argument(
                "--fail-over PERCENT",
                "Exit with 1 if B's step is slower by more than this, beyond noise; with 3 if the "
                "traces do not settle that.",
                type=share,
            ),
            *TOLD,
            COMPILE_LOG,
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
                "OTHER?", "A second trace, to show what differs in each class of time."
            ),
            *PART,
            argument(
                "--worth",
                "What each finding is worth, by a replay with its change; by default, unless that "
                "takes long.",
                action=BooleanOptionalAction,
            ),
            argument(
                "--together K",
                "What the first K findings are worth together.",
                type=amount,
                default=0,
            ),
            JSON,
            flag("--markdown", "Print Markdown, for a pull request."),
            NO_CACHE,
            *GRAPHS,
            COMPILE_LOG,
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
        (
            argument(
                "SNAPSHOT",
                "What torch.cuda.memory._dump_snapshot wrote, compressed or not; a folder of those "
                "of ranks; or a trace recorded with profile_memory=True.",
            ),
            argument("B?", "Another, to compare with the first."),
            JSON,
            by("code", "module", "category"),
            argument(
                "--at WHEN",
                "The moment to tell about: peak, end, oom, or a time after the first event "
                "(12.5ms), of a trace after its beginning.",
                default="peak",
            ),
            *(TOP, *TABLE[1:]),
        ),
        "Bytes are those asked for, of a trace those of blocks; docs/memory.md explains them.",
    ),
    Command(
        "ranks",
        "Many traces of one job: which rank is late, and who waits for it.",
        (
            argument(
                "paths PATH+", "Traces of the ranks: files, folders, patterns or URLs."
            ),
            JSON,
            flag("--csv", "One line per rank, for a spreadsheet; times in ns."),
            argument(
                "--what-if CHANGE+",
                "What changes as those of whatif would be worth to the job, and which rank is "
                "last then; 2:CHANGE changes rank 2 alone.",
            ),
            argument(
                "--on WHERE",
                "Read them on a cluster: dask://HOST:PORT, a running Dask scheduler.",
            ),
            *(TOP, NO_CACHE, *TABLE[1:]),
        ),
        "Each trace is summarized once, by as many processes as cores and memory allow; the "
        "summaries are kept, so that the next question reads no trace. docs/ranks.md explains the "
        "figures.",
    ),
    Command(
        "compile",
        "What torch.compile made: kernels with their lines, graph breaks, compilations.",
        (
            argument(
                "TRACE",
                "A trace with its log, a log of TORCH_TRACE alone, or a folder of logs.",
            ),
            JSON,
            NO_CACHE,
            *GRAPHS,
            COMPILE_LOG,
            TOP,
            *TABLE,
        ),
        "Kernels lead to lines of Python by the log that TORCH_TRACE=DIR INDUCTOR_PROVENANCE=1 "
        "writes. docs/compile.md explains it.",
    ),
    Command(
        "hang",
        "Why a job hangs: which rank is missing, by dumps of torch's flight recorder.",
        (
            argument(
                "paths DUMP+",
                "The dumps of the ranks, one file each (pickles, or JSON of the debug server), or "
                "folders of them.",
            ),
            argument(
                "--trace TRACE",
                "A trace of a rank of the same job: where in a step the collective is.",
            ),
            JSON,
            TOP,
        ),
        "It exits with 1 for a missing rank, a mismatch, a deadlock or an unmatched send or "
        "receive, and with 3 if the dumps do not decide. docs/hang.md explains how to get dumps.",
    ),
    *SHARING,
    Command(
        "decode",
        "Explain kernel names, part by part.",
        (argument("names NAME+", "Kernel names; - reads stdin."), JSON),
    ),
    Command(
        "check",
        "Check a guess about the number of kernels; exit with 1 if it is wrong.",
        (
            TRACE,
            JSON,
            NO_CACHE,
            argument(
                "--expect GUESS",
                'For example "kernels=5 gemm=3 pointwise=2".',
                required=True,
            ),
            *TOLD,
        ),
    ),
    Command(
        "mcp",
        "Answer agents: a server of the Model Context Protocol on stdin and stdout.",
        (
            argument(
                "--allow FOLDER+",
                "The folders whose traces it may read, by default the current one.",
            ),
        ),
        "It reads files below these folders, the lessons and the samples; it opens no URL. "
        "docs/agents.md has its tools and how to register it.",
    ),
    Command("samples", "The traces that ship with fusetui.", (JSON,)),
    Command(
        "schema",
        "The JSON Schema of what a command prints with --json.",
        (argument("of COMMAND", "For example summary."),),
    ),
    Command(
        "help",
        "Print a page of the documentation, or list them.",
        (argument("TOPIC?", "A page, or a command."),),
    ),
    Command(
        "completion",
        "Print a script that completes fusetui in your shell.",
        (argument("SHELL", "bash, zsh or fish.", choices=("bash", "zsh", "fish")),),
        "For bash, write it to ~/.local/share/bash-completion/completions/fusetui; for zsh, to a "
        "file named _fusetui in a folder of $fpath; for fish, to "
        "~/.config/fish/completions/fusetui.fish.",
    ),
)


def command(name: str) -> Command:
    """The command of that name. Raises KeyError if there is none."""
    by_name = {entry.name: entry for entry in COMMANDS}
    return by_name[name]
