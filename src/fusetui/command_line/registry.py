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
        "Start a five-minute guided tour of the app.",
        LOOK,
        "The tour opens lesson:mlp-eager and shows one instruction at a time.",
    ),
    Command(
        "open",
        "Browse one trace or two side by side, or choose from several.",
        (
            argument(
                "traces TRACE*",
                "A trace, a run folder, a folder of runs, sample:NAME or lesson:NAME; or one "
                "or two memory snapshots. The app shows two traces side by side and lists more "
                "than two.",
            ),
            argument(
                "--memory SNAPSHOT*",
                "A memory snapshot of the same run, to show with the trace.",
            ),
            *(*LOOK, *GRAPHS, COMPILE_LOG, NO_CACHE),
        ),
        "`fusetui TRACE` does the same. Without a trace, you can choose from the newest traces "
        "and runs in this folder, recent recordings, recently opened traces, the lessons and "
        "the samples.",
    ),
    Command(
        "summary",
        "Show key figures of the whole trace: times, counts, steps and lanes.",
        ANSWER,
    ),
    Command(
        "kernels",
        "List kernels, grouped by name, op, shape and so on, with the largest total time "
        "first.",
        (*ANSWER, COMPILE_LOG, TOP, by(*KERNELS_BY), *PEAKS, *TABLE),
        "If the trace has shapes, the command also shows FLOP, bytes and the share of the "
        "device's peak.",
    ),
    Command(
        "ops",
        "List CPU ops by name or shape, with the GPU time that each launched.",
        (*ANSWER, COMPILE_LOG, TOP, by(*OPS_BY), *TABLE),
    ),
    Command(
        "modules",
        "Show the tree of modules and annotations, with the GPU time of each.",
        (
            *ANSWER,
            TOP,
            flag("--expand", "Keep module indices: Linear_3 instead of Linear_*."),
            *TABLE,
        ),
        "Backward work belongs to the module of its forward op. Module names require stacks "
        "(with_stack=True); annotations come from record_function.",
    ),
    Command(
        "lines",
        "List your Python functions, with the CPU and GPU time of each.",
        (
            *ANSWER,
            COMPILE_LOG,
            TOP,
            argument(
                "--file PATH",
                "Show the functions in this file or folder instead of your own code.",
            ),
            by("function", "line"),
            *TABLE,
        ),
        "Time in library functions is attributed to the function in your code that called them. The trace "
        "must have stacks (with_stack=True). For --by line, it must come from torch 2.14 or "
        "later, which records the calling lines.",
    ),
    Command(
        "whatif",
        "Estimate the gain of a change by replaying the trace with it.",
        (
            TRACE,
            argument(
                "changes CHANGE*",
                "kernel:PATTERN x0.5, kind:gemm x0.8, kernel:PATTERN 40us, op:PATTERN x0, "
                "module:PATTERN x0, python x0.5, fuse, graph, no-sync:PATTERN, loader, comm x0, "
                "overlap, device=NAME, ...; you can combine several.",
            ),
            PART[0],
            argument(
                "--steps",
                "Report only the median step, or, with all, also every step.",
                choices=("median", "all"),
                default="median",
            ),
            argument(
                "--sweep CHANGE",
                "Replay one change at ten factors, as in 'kernel:attn x0.1..1', to find where "
                "the gain ends.",
            ),
            *(JSON, NO_CACHE, *GRAPHS),
        ),
        "docs/whatif.md lists all changes and explains the replay and its accuracy.",
    ),
    Command(
        "path",
        "Show the critical path of a trace, and the slack of other work.",
        ANSWER,
    ),
    Command(
        "reproduce",
        "Write a Python script that reproduces, checks and times one op or kernel of a trace.",
        (
            TRACE,
            argument(
                "--op NAME",
                "Reproduce the op with this name, such as aten::mm, mm or AddmmBackward0.",
            ),
            argument("--kernel PATTERN", "Reproduce the op that launched this kernel."),
            argument(
                "--row N",
                "Reproduce the op in this row, or the op that launched the event in this "
                "row.",
                type=amount,
            ),
            argument(
                "--module NAME",
                "Reproduce all ops of one call of this module, in order.",
            ),
            argument(
                "--top N",
                "Reproduce the N calls that took the most time. With --out, write a folder of "
                "scripts, and one that runs them all.",
                type=amount,
                default=0,
            ),
            argument(
                "--out PATH",
                "The path of the new script or, with --top, of the new folder.",
            ),
            flag(
                "--with-generated-code",
                "For a kernel of torch.compile, copy its generated code from the compile log "
                "into a file next to the script. The script runs this code.",
            ),
            *(COMPILE_LOG, JSON, NO_CACHE, *GRAPHS),
        ),
        "Without an option, the command lists the calls that took the most time. A script "
        "needs only torch. It creates inputs with the recorded shapes, strides and types, "
        "profiles the call, and reports whether the same ops and kernels run. "
        "docs/reproduce.md has an example.",
    ),
    Command(
        "launches",
        "Show the launch calls of each thread, graph replays, and the launch queue.",
        (*ANSWER, TOP, *TABLE),
        "With --format or --output, the table contains only the launch calls.",
    ),
    Command(
        "steps",
        "List the steps, with the number of kernels that each launched.",
        (*ANSWER, TOP, *TABLE),
    ),
    Command(
        "slices",
        "List all slices of a trace, with their lanes, ops and steps.",
        (*ANSWER, TOP, *TABLE),
        "For example, list every GEMM longer than 50 us with --where 'kind = gemm and dur > "
        "50us'.",
    ),
    Command(
        "sql",
        "Query the tables of traces with SQL (DuckDB).",
        (
            TRACE,
            argument(
                "others QUERY*",
                "More traces, and a SELECT statement, which is an argument that "
                "contains a space and is not a file. Without a statement, fusetui "
                "reads queries from the terminal or from "
                "standard input.",
            ),
            *(NO_CACHE, *GRAPHS, TOP, *TABLE[1:3]),
        ),
        'An example of a query is "select family, sum(total_ns) as total_ns from kernels group '
        'by family". docs/sql.md has recipes, and docs/tables.md lists all tables and columns.',
    ),
    Command(
        "serving",
        "Analyze steps of vLLM and SGLang: phases, layers, time between steps, and lower "
        "bounds.",
        (
            *ANSWER,
            argument(
                "--model-config FILE",
                "The config.json of the model. fusetui takes the sizes of keys and values from "
                "it and, for a dense model, those of the weights if the trace has no shapes.",
            ),
            *PEAKS,
        ),
        "The lower bound of a step is the time to read its weights, keys and values once and "
        "to compute its products at the peak rates of the device. See docs/serving.md.",
    ),
    Command(
        "diff",
        "Show what changed from A to B: fused, added, removed, slower and faster work.",
        (
            argument("A", "The baseline: a trace, or a folder of traces."),
            argument("B?", "The other trace; omit it for a run folder."),
            argument(
                "--baseline VARIANT",
                "Compare the other variants of a run folder with this one.",
            ),
            STEP_BY,
            JSON,
            flag("--markdown", "Print Markdown, for a report."),
            argument(
                "--fail-over PERCENT",
                "Exit with 1 if a step of B is slower by more than this, beyond noise, and "
                "with 3 if that is inconclusive.",
                type=share,
            ),
            *TOLD,
            COMPILE_LOG,
            NO_CACHE,
        ),
        "For two folders, the command compares files with the same name. For a run folder, it "
        "compares every variant with the first.",
    ),
    Command(
        "why",
        "Show where the time went, and why the GPU was idle.",
        (
            TRACE,
            argument("OTHER?", "A second trace, to compare each class of time."),
            *PART,
            argument(
                "--worth",
                "Estimate the gain of each finding with a replay. This is the "
                "default unless the replay takes long.",
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
        "Compute, exposed communication, exposed copies and idle time add up exactly "
        "to the total time, and the idle reasons add up to the idle time. See docs/why.md.",
    ),
    Command(
        "gaps",
        "List the longest gaps in which a GPU was idle, and what it waited for.",
        (TRACE, *PART, JSON, NO_CACHE, *GRAPHS, TOP, *TABLE),
        "With --format or --output, the table contains all gaps.",
    ),
    Command(
        "memory",
        "Show what holds GPU memory at the peak, or when memory ran out.",
        (
            argument(
                "SNAPSHOT",
                "A file from torch.cuda.memory._dump_snapshot, compressed or not; a folder "
                "with one such file per rank; or a trace recorded with profile_memory=True.",
            ),
            argument("B?", "A second snapshot, to compare with the first."),
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
        "Sizes are requested sizes or, for a trace, sizes of allocator blocks. See "
        "docs/memory.md.",
    ),
    Command(
        "ranks",
        "Compare the traces of one job: which rank is late, and which ranks wait for it.",
        (
            argument(
                "paths PATH+",
                "The traces of the ranks: files, folders, patterns or URLs.",
            ),
            JSON,
            flag(
                "--csv", "Print one line per rank for a spreadsheet, with times in ns."
            ),
            argument(
                "--what-if CHANGE+",
                "Estimate the gain of changes (as in whatif) for the whole job, and show which "
                "rank is then last; 2:CHANGE changes only rank 2.",
            ),
            argument(
                "--on WHERE",
                "Read the traces on a cluster with a running Dask scheduler, dask://HOST:PORT.",
            ),
            *(TOP, NO_CACHE, *TABLE[1:]),
        ),
        "fusetui summarizes each trace once, in as many processes as cores and memory allow. "
        "Later runs read only the summaries. See docs/ranks.md.",
    ),
    Command(
        "compile",
        "Show what torch.compile did: kernels with their source lines, graph breaks and "
        "compilations.",
        (
            argument(
                "TRACE",
                "A trace with its log, or only a log of TORCH_TRACE or a folder of logs.",
            ),
            JSON,
            NO_CACHE,
            *GRAPHS,
            COMPILE_LOG,
            TOP,
            *TABLE,
        ),
        "fusetui finds the Python lines of a kernel in the log that torch writes with "
        "TORCH_TRACE=DIR INDUCTOR_PROVENANCE=1. See docs/compile.md.",
    ),
    Command(
        "hang",
        "Show why a job hangs and which rank is missing, from torch's flight-recorder dumps.",
        (
            argument(
                "paths DUMP+",
                "The dumps, one file per rank (pickles, or JSON of the debug server), or folders "
                "of them.",
            ),
            argument(
                "--trace TRACE",
                "A trace of any rank of the same job, to show where in a step the collective "
                "is.",
            ),
            JSON,
            TOP,
        ),
        "The exit code is 1 for a missing rank, a mismatch, a deadlock, or an unmatched send "
        "or receive, and 3 if the dumps are inconclusive. docs/hang.md explains how to record "
        "dumps.",
    ),
    *SHARING,
    Command(
        "decode",
        "Explain kernel names, part by part.",
        (argument("names NAME+", "Kernel names, or - to read them from stdin."), JSON),
    ),
    Command(
        "check",
        "Check the number of kernels, and exit with 1 if it differs from the expected one.",
        (
            TRACE,
            JSON,
            NO_CACHE,
            argument(
                "--expect GUESS",
                'The expected numbers, such as "kernels=5 gemm=3 pointwise=2".',
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
                "Folders whose traces the server may read; the current folder by default.",
            ),
        ),
        "The server reads only files in these folders, the lessons and the samples, and no "
        "URLs. docs/agents.md lists its tools and explains how to register it.",
    ),
    Command("samples", "List the traces that ship with fusetui.", (JSON,)),
    Command(
        "schema",
        "Print the JSON Schema of a command's --json output.",
        (argument("of COMMAND", "The command, such as summary."),),
    ),
    Command(
        "help",
        "Print a page of the documentation, or list all pages.",
        (argument("TOPIC?", "A page or a command."),),
    ),
    Command(
        "completion",
        "Print a completion script for your shell.",
        (argument("SHELL", "bash, zsh or fish.", choices=("bash", "zsh", "fish")),),
        "For bash, write the script to ~/.local/share/bash-completion/completions/fusetui; for "
        "zsh, to a file named _fusetui in a folder in $fpath; for fish, to "
        "~/.config/fish/completions/fusetui.fish.",
    ),
)


def command(name: str) -> Command:
    """Return the command of that name. Raises KeyError if there is none."""
    by_name = {entry.name: entry for entry in COMMANDS}
    return by_name[name]
