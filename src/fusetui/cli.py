"""The command line: what can be asked for. How it is answered is in `commands`, imported when
a command runs, so that `fusetui --help` costs next to nothing.

Exit codes: 0 done; 1 the answer is no (a diff or check that failed its threshold); 2 wrong use or
unreadable input, with one sentence on stderr.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from fusetui import __version__

app = typer.Typer(
    name="fusetui",
    help="Shows where the time of a PyTorch program's kernels went, in the terminal.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

TraceArgument = Annotated[
    str, typer.Argument(metavar="TRACE", help="A trace (.json, .gz or .zst), - or sample:NAME.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document; times in ns, exact.")]
Top = Annotated[
    int, typer.Option("--top", metavar="N", min=0, help="Rows of the table; 0 shows all.")
]


def _switch_cache_off(unwanted: bool) -> None:
    if unwanted:
        os.environ["FUSETUI_CACHE"] = "off"


NoCache = Annotated[
    bool,
    typer.Option(
        "--no-cache", callback=_switch_cache_off, help="Read the file anew; keep nothing."
    ),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"fusetui {__version__}")
        raise typer.Exit


@app.callback()
def _fusetui(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version."),
    ] = False,
) -> None: ...


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def capture(
    context: typer.Context,
    workload: Annotated[
        str,
        typer.Argument(metavar="WORKLOAD", help="mlp, linear, ... or your own file.py:build."),
    ],
    variant: Annotated[
        list[str] | None,
        typer.Option("--variant", metavar="V", help="Only this one; may be repeated."),
    ] = None,
    device: Annotated[str, typer.Option(metavar="WHERE", help="auto, cuda or cpu.")] = "auto",
    dtype: Annotated[
        str | None, typer.Option(metavar="D", help="bfloat16, float16 or float32.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run folder to write.")
    ] = None,
    steps: Annotated[int, typer.Option(metavar="N", help="Profiled steps.")] = 3,
    seconds: Annotated[
        float | None, typer.Option(metavar="S", help="Time spent on timing each variant.")
    ] = None,
    backward: Annotated[bool, typer.Option("--backward", help="Forward and backward.")] = False,
    mode: Annotated[
        str | None, typer.Option(metavar="M", help="The mode of torch.compile.")
    ] = None,
    stack: Annotated[bool, typer.Option("--stack", help="Record Python frames.")] = False,
    record_shapes: Annotated[
        bool, typer.Option("--shapes/--no-shapes", help="Record the shapes of inputs.")
    ] = True,
    memory: Annotated[bool, typer.Option("--memory", help="Record allocations.")] = False,
    scrub: Annotated[
        bool, typer.Option("--scrub", help="Take out host names, user names and paths.")
    ] = False,
    expect: Annotated[
        list[str] | None,
        typer.Option("--expect", metavar="GUESS", help='"kernels=5 gemm=3"; exit 1 when wrong.'),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option("--sweep", metavar="AXIS", help="A run per value: batch=1,2,4."),
    ] = None,
    open_after: Annotated[bool, typer.Option("--open", help="Open the result.")] = False,
) -> int:
    """Profile the variants of a workload and write a run folder.

    Shapes are options too, by the names of the workload: --batch 32 --hidden 64. A guess may
    be for one variant: --expect "eager: kernels=5". A sweep over several axes measures every
    combination; batch=64,128,...,2048 goes on as it began, and paper-batch is the name of one.
    """
    from fusetui.capture.options import Options, Recording
    from fusetui.commands.measure import capture as run
    from fusetui.commands.measure import seconds_for

    options = Options(
        variants=tuple(variant or ()),
        device=device,
        dtype=dtype,
        shapes=tuple(context.args),
        backward=backward,
        mode=mode,
        expect=tuple(expect or ()),
        seconds=seconds_for(seconds, sweep or ()),
        recording=Recording(steps, stack, record_shapes, memory, scrub),
    )
    return run(workload, options, out, tuple(sweep or ()), open_after)


@app.command("open")
def open_traces(
    trace: Annotated[
        str, typer.Argument(metavar="TRACE", help="A trace, a run folder or sample:NAME.")
    ],
    other: Annotated[
        str | None, typer.Argument(metavar="OTHER", help="A second one, side by side.")
    ] = None,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Draw with ASCII only.")] = False,
    mouse: Annotated[bool, typer.Option(help="Let the app see the mouse.")] = True,
    no_cache: NoCache = False,
) -> int:
    """Browse a trace, or two side by side."""
    from fusetui.commands.browse import browse

    return browse([trace] if other is None else [trace, other], ascii_only, mouse)


@app.command()
def summary(trace: TraceArgument, json: Json = False, no_cache: NoCache = False) -> int:
    """The figures of a whole trace: times, counts, steps, lanes."""
    from fusetui.commands.figures import summary as run

    return run(trace, json)


@app.command()
def kernels(
    trace: TraceArgument, json: Json = False, top: Top = 20, no_cache: NoCache = False
) -> int:
    """The kernels by name, the largest total time first."""
    from fusetui.commands.figures import kernels as run

    return run(trace, json, top)


@app.command()
def ops(trace: TraceArgument, json: Json = False, top: Top = 20, no_cache: NoCache = False) -> int:
    """The CPU ops by name, with the GPU time launched under each."""
    from fusetui.commands.figures import ops as run

    return run(trace, json, top)


@app.command()
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="The trace to compare with.")],
    b: Annotated[
        str | None, typer.Argument(metavar="B", help="The other; a run folder A has all.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="VARIANT", help="Of a run folder: what the others are compared with."),
    ] = None,
    json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="A table for a report.")] = False,
    fail_over: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT", min=0, help="Exit 1 if B's step is slower by more, beyond noise."
        ),
    ] = None,
    no_cache: NoCache = False,
) -> int:
    """What B does differently from A: what was fused, added, removed, slower or faster.

    Two folders are compared by the names of their files; of one run folder, every variant with the
    first.
    """
    from fusetui.commands.compare import compare

    return compare(a, b, json, markdown, fail_over, baseline)


@app.command()
def decode(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Names; - reads stdin.")],
    json: Json = False,
) -> int:
    """Explain kernel names, part by part."""
    from fusetui.commands.explain import explain

    return explain(names, json)


@app.command()
def check(
    trace: TraceArgument,
    expect: Annotated[
        str, typer.Option(metavar="GUESS", help='For example "kernels=5 gemm=3 pointwise=2".')
    ],
    json: Json = False,
    no_cache: NoCache = False,
) -> int:
    """Guess first, then look: exit 1 when the trace's kernels differ from the guess."""
    from fusetui.commands.guess import check as run

    return run(trace, expect, json)


@app.command()
def samples(json: Json = False) -> int:
    """The traces that ship with fusetui."""
    from fusetui.commands.browse import list_samples

    return list_samples(json)


def main() -> None:
    """The console script."""
    from fusetui.commands.errors import guarded

    command = typer.main.get_command(app)
    sys.exit(guarded(lambda: command.main(prog_name="fusetui", standalone_mode=False)))
