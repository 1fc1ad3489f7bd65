"""The commands that write files to pass on: parts of traces, pictures, reports, stacks."""

from __future__ import annotations

from fusetui.arguments import (
    GRAPHS,
    LIGHT,
    NO_CACHE,
    OUT,
    PART,
    RANGE,
    STEP_BY,
    TRACE,
    Command,
    amount,
    argument,
    flag,
    pixels,
    size,
)

PICTURED = ("timeline", "tree", "kernels", "diff", "why", "modules", "flame")
"""The pages of the app that `picture` draws."""
SCRUB = flag("--scrub", "Remove private data, as scrub does.")
CUT = (
    *(*PART[:3], STEP_BY),
    argument(
        "--around",
        metavar="ROW",
        type=amount,
        help="A slice, by its row, with the GPU events that it launched.",
    ),
    flag("--steady", "The step of median duration, the first left aside."),
    *(SCRUB, NO_CACHE),
)
SHARED = (
    Command(
        "scrub",
        "Write a copy of a trace without private data, to share it.",
        (TRACE, OUT),
        "Environment variables, tokens, names of hosts and users, command lines and folders are "
        "removed; all figures stay exactly as they are.",
    ),
    Command(
        "cut",
        "Write a part of a trace as a trace of its own.",
        (TRACE, OUT, RANGE, *CUT),
        "GPU events stay whole and keep their launch calls with all that encloses them; CPU slices "
        "that reach beyond the part are clipped. Its figures are those of the whole for that time.",
    ),
    Command(
        "perfetto",
        "Write a part of a trace that Perfetto's page can open.",
        (TRACE, OUT, argument("--at", **RANGE.settings), *CUT),
        "As cut does, of any format; ui.perfetto.dev opens it without sending it anywhere.",
    ),
    Command(
        "picture",
        "A page of the app as a picture: SVG, PNG or HTML.",
        (
            TRACE,
            argument("other", metavar="OTHER", nargs="?", help="A second trace, for the diff."),
            argument("out", metavar="OUT", help="The new file, named .svg, .png or .html."),
            argument(
                "--page",
                choices=PICTURED,
                metavar="PAGE",
                help=f"Which one: {', '.join(PICTURED[:-1])} or {PICTURED[-1]}; by default the "
                "timeline, or the diff of two traces.",
            ),
            *(*PART[:3], RANGE, STEP_BY, *LIGHT),
            argument(
                "--size",
                metavar="COLUMNSxLINES",
                type=size,
                default=(118, 32),
                help="How much of the page it shows, 118x32 by default.",
            ),
            argument(
                "--pixels",
                metavar="N",
                type=pixels,
                default=0,
                help="Its width; by default that of its text.",
            ),
            *(NO_CACHE, *GRAPHS),
        ),
        "Texts of an SVG can be selected and searched; it loads nothing and runs no script. PNG "
        "needs fusetui[picture]. docs/pictures.md has examples.",
    ),
    Command(
        "report",
        "One page for a browser: account, findings, tables, timeline, and the diff of two.",
        (
            argument("a", metavar="A", help="A trace."),
            argument("b", metavar="B", nargs="?", help="Another, to compare with the first."),
            argument("out", metavar="OUT", help="The new file, named .html."),
            *(*LIGHT, NO_CACHE),
        ),
        "It needs nothing else: it loads nothing and is below 1 MB. Its figures are those of "
        "--json; a click on the head of a column sorts by them. By default it is light or dark "
        "as the browser has it.",
    ),
    Command(
        "stacks",
        "Stacks of ops, modules or Python frames with their times, for other flame graphs.",
        (
            TRACE,
            argument("out", metavar="OUT", nargs="?", help="A new file; by default, printed."),
            argument(
                "--of",
                choices=("ops", "modules", "python"),
                metavar="WHAT",
                default="ops",
                help="ops, modules or python, as on the app's flame page.",
            ),
            argument(
                "--time",
                choices=("gpu", "cpu"),
                metavar="WHICH",
                help="The time on the gpu that they launched, or on the cpu; by default of the "
                "GPU, if there is any.",
            ),
            flag("--folded", "A line for each stack, `a;b;c 1200`, in ns; the default."),
            flag("--speedscope", "A file of www.speedscope.app, which draws it in your browser."),
            *(NO_CACHE, *GRAPHS),
        ),
        "flamegraph.pl, inferno and many others read folded stacks. docs/pictures.md has examples.",
    ),
    Command(
        "convert",
        "Write a trace of any format as the JSON of torch.profiler.",
        (TRACE, OUT),
        "It holds all that the trace does, to the nanosecond, and opens in Perfetto and others.",
    ),
)
