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
                "A trace, a run folder, a folder of runs, sample:NAME or lesson:NAME. Two are "
                "shown side by side; more are listed. Or one or two memory snapshots.",
            ),
            argument(
                "--memory SNAPSHOT*",
                "A memory snapshot of the same run, to show beside the trace.",
            ),
            *(*LOOK, *GRAPHS, COMPILE_LOG, NO_CACHE),
        ),
        "`fusetui TRACE` does the same. Without a trace, you choose from the newest traces and "
        "runs in this folder, what was recorded or opened recently, the lessons and the samples.",
    ),
    Command(
        "summary",
        "Key figures of the whole trace: times, counts, steps, lanes.",
        ANSWER,
    ),
    Command(
        "kernels",
        "Kernels grouped by name, op, shape and so on, largest total first.",
        (*ANSWER, COMPILE_LOG, TOP, by(*KERNELS_BY), *PEAKS, *TABLE),
        "Also shows FLOP, bytes and the share of the device's peak, if shapes were recorded.",
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
                "The functions of this file or folder, instead of your own code.",
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
        "The estimated gain of a change, by replaying the trace with it.",
        (
            TRACE,
            argument(
                "changes CHANGE*",
                "kernel:PATTERN x0.5, kind:gemm x0.8, kernel:PATTERN 40us, op:PATTERN x0, "
                "module:PATTERN x0, python x0.5, fuse, graph, no-sync:PATTERN, loader, comm x0, "
                "overlap, device=NAME, ...; several are applied together.",
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
                "One change at ten factors, as in 'kernel:attn x0.1..1', to find where the gain "
                "ends.",
            ),
            *(JSON, NO_CACHE, *GRAPHS),
        ),
        "docs/whatif.md lists all changes, and explains the replay and its accuracy.",
    ),
    Command(
        "path",
        "The critical path of a trace, and the slack of what is not on it.",
        ANSWER,
    ),
    Command(
        "reproduce",
        "A Python script that makes one op or kernel of a trace again, checks and times it.",
        (
            TRACE,
            argument(
                "--op NAME", "The op with this name: aten::mm, mm, or AddmmBackward0."
            ),
            argument("--kernel PATTERN", "The op that launched this kernel."),
            argument(
                "--row N", "The op that this row is, or was launched by.", type=amount
            ),
            argument("--module NAME", "All ops of one call of this module, in order."),
            argument(
                "--top N",
                "The N calls that took the most time: with --out a folder of scripts, and one that "
                "runs them all.",
                type=amount,
                default=0,
            ),
            argument("--out PATH", "The new script, or with --top the new folder."),
            flag(
                "--with-generated-code",
                "For a kernel of torch.compile: copy its generated code from the compile log "
                "beside the script, which runs it.",
            ),
            *(COMPILE_LOG, JSON, NO_CACHE, *GRAPHS),
        ),
        "Without an option, lists the calls that took the most time. A script needs torch alone: "
        "it makes inputs with the recorded shapes, strides and types, profiles the call, and says "
        "whether the same ops and kernels run. docs/reproduce.md has an example.",
    ),
    Command(
        "launches",
        "The launch calls of each thread, replays of graphs, and the launch queue.",
        (*ANSWER, TOP, *TABLE),
        "As a table, launch calls only.",
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
        "For example every GEMM longer than 50 us: --where 'kind = gemm and dur > 50us'.",
    ),
    Command(
        "sql",
        "Query the tables of traces in SQL (DuckDB).",
        (
            TRACE,
            argument(
                "others QUERY*",
                "More traces, and a SELECT: an argument with a space that names no file. Without "
                "a SELECT, you enter queries in the terminal, or they are read from standard input.",
            ),
            *(NO_CACHE, *GRAPHS, TOP, *TABLE[1:3]),
        ),
        'For example "select family, sum(total_ns) as total_ns from kernels group by family". '
        "docs/sql.md has recipes, and docs/tables.md all tables and columns.",
    ),
    Command(
        "serving",
        "Steps of vLLM and SGLang: phases, layers, time between them, and lower bounds.",
        (
            *ANSWER,
            argument(
                "--model-config FILE",
                "The config.json of the model, for the sizes of its keys and values and, if it "
                "is dense, its weights, where no shapes were recorded.",
            ),
            *PEAKS,
        ),
        "The lower bound of a step is the time to read its weights, keys and values once and to "
        "compute its products, at the peak rates of the device. docs/serving.md explains it.",
    ),
    Command(
        "diff",
        "What B does differently from A: fused, added, removed, slower, faster.",
        (
            argument("A", "The baseline: a trace, or a folder of traces."),
            argument("B?", "The other trace; not needed for a run folder."),
            argument(
                "--baseline VARIANT",
                "The variant of a run folder that the others are compared with.",
            ),
            STEP_BY,
            JSON,
            flag("--markdown", "Print Markdown, for a report."),
            argument(
                "--fail-over PERCENT",
                "Exit with 1 if B's step is slower by more than this, beyond noise; with 3 if "
                "that is inconclusive.",
                type=share,
            ),
            *TOLD,
            COMPILE_LOG,
            NO_CACHE,
        ),
        "Compares files of the same name in two folders, or every variant of a run folder with "
        "the first.",
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
                "Estimate the gain of each finding by a replay; the default, unless that takes "
                "long.",
                action=BooleanOptionalAction,
            ),
            argument(
                "--together K",
                "Estimate the gain of the first K findings together.",
                type=amount,
                default=0,
            ),
            JSON,
            flag("--markdown", "Print Markdown, for a pull request."),
            NO_CACHE,
            *GRAPHS,
            COMPILE_LOG,
        ),
        "Compute, exposed communication, exposed copies and idle time add up to the total time, "
        "exactly; the reasons add up to the idle time. docs/why.md explains each.",
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
                "A file of torch.cuda.memory._dump_snapshot, compressed or not; a folder of them, "
                "one per rank; or a trace recorded with profile_memory=True.",
            ),
            argument("B?", "Another, to compare with the first."),
            JSON,
            by("code", "module", "category"),
            argument(
                "--at WHEN",
                "The moment to report: peak, end, oom, or a time (12.5ms) after the first event "
                "of a snapshot or the start of a trace.",
                default="peak",
            ),
            *(TOP, *TABLE[1:]),
        ),
        "Sizes are as requested; those of a trace are allocator blocks. docs/memory.md explains "
        "them.",
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
                "The estimated gain of changes (as in whatif) for the job, and the last rank "
                "after them; 2:CHANGE changes rank 2 only.",
            ),
            argument(
                "--on WHERE",
                "Read the traces on a cluster: dask://HOST:PORT, a running Dask scheduler.",
            ),
            *(TOP, NO_CACHE, *TABLE[1:]),
        ),
        "Each trace is summarized once, in as many processes as cores and memory allow. Later runs "
        "read the summaries only. docs/ranks.md explains the figures.",
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
        "Why a job hangs and which rank is missing, from torch's flight-recorder dumps.",
        (
            argument(
                "paths DUMP+",
                "The dumps, one file per rank (pickles, or JSON of the debug server), or folders "
                "of them.",
            ),
            argument(
                "--trace TRACE",
                "A trace of a rank of the same job: where in a step the collective is.",
            ),
            JSON,
            TOP,
        ),
        "Exits with 1 for a missing rank, a mismatch, a deadlock or an unmatched send or receive, "
        "and with 3 if the dumps are inconclusive. docs/hang.md explains how to get dumps.",
    ),
    *SHARING,
    Command(
        "decode",
        "Explain kernel names, part by part.",
        (argument("names NAME+", "Kernel names; - reads stdin."), JSON),
    ),
    Command(
        "check",
        "Check the number of kernels; exit with 1 if it is not as expected.",
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
        "Serve agents with the Model Context Protocol on stdin and stdout.",
        (
            argument(
                "--allow FOLDER+",
                "The folders whose traces it may read, by default the current one.",
            ),
        ),
        "It reads only files in these folders, the lessons and the samples, and no URLs. "
        "docs/agents.md lists its tools and how to register it.",
    ),
    Command("samples", "The traces that ship with fusetui.", (JSON,)),
    Command(
        "schema",
        "The JSON Schema of a command's --json output.",
        (argument("of COMMAND", "For example summary."),),
    ),
    Command(
        "help",
        "Print a page of the documentation, or list all pages.",
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
