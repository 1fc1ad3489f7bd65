"""Commands and their arguments as values, and the arguments that several commands
share.

Every command imports this, so it must import in a few milliseconds.
"""

from __future__ import annotations

from argparse import (
    Action,
    ArgumentError,
    ArgumentTypeError,
    BooleanOptionalAction,
    Namespace,
)
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple


class Argument(NamedTuple):
    """The arguments for `ArgumentParser.add_argument`."""

    name: str
    settings: Mapping[str, Any]


VALUE_COUNTS: dict[str, dict[str, Any]] = {
    "?": {"nargs": "?"},
    "*": {"nargs": "*", "default": []},
    "+": {"nargs": "+"},
    "-*": {"action": "append", "default": []},
    "-+": {"nargs": "+", "action": "extend", "default": []},
}
"""How many values there may be, by the sign at the end of a usage; options have a dash
before it."""


def argument(usage: str, text: str, **settings: Any) -> Argument:
    """Return an option or a positional argument of the command line.

        argument("--top N", "How many rows.", type=amount)

    Args:
        usage: The name, and what stands for a value. It may end with a sign that says
            how many values there are: `A?` may be left out, of `A+` there are several,
            of `A*` any number; `--a A+` takes several at once, and `--a A*` may be
            repeated. A positional argument is named as its value in lower case, unless
            the usage has both: `traces TRACE*`.
        text: What the help says about it.
        settings: More arguments for `ArgumentParser.add_argument`.
    """
    name, _, metavar = usage.rstrip("?*+").partition(" ")
    is_option = name.startswith("-")
    last_character = usage[-1]
    all_settings: dict[str, Any] = {"help": text}
    if is_option:
        all_settings.update(VALUE_COUNTS.get(f"-{last_character}", {}))
    else:
        all_settings.update(VALUE_COUNTS.get(last_character, {}))
        metavar = metavar or name
        name = name.lower()
    if metavar:
        all_settings["metavar"] = metavar
    all_settings.update(settings)
    return Argument(name, all_settings)


def flag(name: str, text: str) -> Argument:
    """Return an option without a value, which is True where it is given."""
    return argument(name, text, action="store_true")


def by(*groupings: str) -> Argument:
    """Return the option `--by`, which says what the rows of a table are grouped by. The
    first grouping is the default. Old words are accepted, but not listed in the help.
    """
    listed = [grouping for grouping in groupings if grouping not in OLD_GROUPINGS]
    *others, last = listed
    text = f"Group by {', '.join(others)} or {last}."
    return argument("--by WHAT", text, choices=groupings, default=groupings[0])


def amount(text: str) -> int:
    """Return the whole number, at least 0, that a value of the command line means.
    Raises ArgumentTypeError or ValueError for anything else."""
    number = int(text)
    if number < 0:
        raise ArgumentTypeError(f"takes a number of at least 0, not {text!r}")
    return number


def share(text: str) -> float:
    """Return the percentage, at least 0, that a value of the command line means. Raises
    ArgumentTypeError for anything else."""
    from fusetui.text.figures import amount as number_of  # only where one is given

    number = number_of(text)
    if number is None:
        raise ArgumentTypeError(f"takes a number of at least 0, not {text!r}")
    return number


class TimeRange(Action):
    """Stores `1.2ms..3.4ms` as the values of --from and --to. One of them may be left
    out."""

    def __call__(
        self, _: object, args: Namespace, value: Any, option: str | None = None
    ) -> None:
        if ".." not in value:
            raise ArgumentError(
                self, f"takes two times, as in 1.2ms..3.4ms, not {value!r}"
            )
        begin, end = value.split("..", maxsplit=1)
        args.begin = begin or None
        args.end = end or None


KERNELS_BY = (
    "name", "op", "shape", "module", "kind", "library", "stream", "step", "family"
)  # fmt: skip
OLD_GROUPINGS = ("family",)  # now library
OPS_BY = ("name", "shape")
OUT = argument("OUT", "The new file, named .json, .json.gz or .json.zst.")
TRACE = argument(
    "TRACE",
    "A trace (see docs/formats.md), a URL, - for stdin, sample:NAME or lesson:NAME.",
)
JSON = flag("--json", "Print one JSON document, with exact times in ns.")
NO_CACHE = flag(
    "--no-cache",
    "Read the file itself instead of the cache, and do not write to the cache.",
)
CAPTURED_BY = argument(
    "--captured-by CAPTURE*",
    "Take the ops and modules of replayed kernels from this trace of the graph capture, or "
    "from a folder of such traces. May be repeated; by default, fusetui searches the folder of "
    "the trace.",
)
# names files of annotations among captures (analysis/graphs)
BY_ANNOTATIONS = "annotations:"
GRAPHS = (
    CAPTURED_BY,
    argument(
        "--annotations FILE",
        "Take the modules of replayed kernels from this pickle of torch.cuda.graph_annotations. May "
        "be repeated; the default is TRACE.annotations.pkl next to TRACE.json.gz.",
        dest="captured_by",  # one list: what tells where nodes of graphs come from
        action="append",
        type=(BY_ANNOTATIONS + "{}").format,
    ),
)
COMPILE_LOG = argument(
    "--compile-log LOG",
    "The output of torch.compile: a log of TORCH_TRACE, a folder of logs, or "
    "torch_compile_debug. By default, fusetui searches the folder of the trace.",
    default="",
)
LOOK = (
    flag("--ascii", "Draw with ASCII characters only, as in a C locale."),
    argument(
        "--theme",
        "Use colors for a dark or a light background; auto queries the terminal.",
        choices=("auto", "dark", "light"),
        default="auto",
    ),
    argument(
        "--mouse",
        "Handle the mouse in the app, or leave it to the terminal.",
        action=BooleanOptionalAction,
    ),
)
STEP_BY = argument(
    "--step-by PATTERN", "Use annotations that match this pattern as steps."
)
RANGE = argument(
    "--range T..T", "Short for --from T --to T, as in 1.2ms..3.4ms.", action=TimeRange
)
PART = (
    argument(
        "--step N",
        "Show only ProfilerStep#N, or the Nth step if steps have no numbers.",
        type=int,
    ),
    argument(
        "--from T",
        "Show only the time from here on, such as 12.5ms. Without a unit, the number is in ns.",
        dest="begin",
    ),
    argument("--to T", "Show only the time up to here.", dest="end"),
    argument("--device D", "Show only the GPU with this number."),
    STEP_BY,
    flag(
        "--all",
        "List all gaps instead of only the longest; `why` also prints negligible findings "
        "(docs/why.md).",
    ),
    RANGE,
)
"""The part of a trace that a question is about."""

TOLD = (
    flag(
        "--github",
        "Print annotations for GitHub, and write Markdown to the file $GITHUB_STEP_SUMMARY.",
    ),
    argument(
        "--junit FILE", "Write JUnit XML to this file; an existing file is replaced."
    ),
)
"""Other forms of a verdict, for pipelines."""
LIGHT = (
    argument("--light", "Use a white background.", action="store_true", default=None),
    argument(
        "--dark",
        "Use a black background.",
        dest="light",
        action="store_false",
        default=None,
    ),
)
PEAKS = (
    argument(
        "--peak KIND=FIGURE*",
        "Set a peak of the device in FLOP/s, as in bf16=989e12, or in bytes/s, as in "
        "bandwidth=3.35e12. May be repeated.",
    ),
    argument(
        "--device NAME",
        "The GPU model, such as 'H100 80GB HBM3', if the trace does not record it.",
    ),
)
TOP = argument(
    "--top N", "Show this many rows, 20 by default; 0 shows all.", type=amount
)
# the default of TOP, which is absent from the arguments so that tables can tell
ROWS = 20
FORMATS = ("table", "json", "csv", "tsv", "markdown", "parquet")
TABLE = (
    argument(
        "others TRACE*",
        "More traces. The table has the rows of all traces, and a column for the file.",
    ),
    argument(
        "--format FORMAT",
        f"Print a table: {', '.join(FORMATS[:-1])} or {FORMATS[-1]}. Only the first "
        "format shortens names to fit the terminal.",
        choices=FORMATS,
    ),
    argument(
        "--output FILE",
        "Write the table to a new file. --format or the suffix (.csv, .tsv, .md, .json, "
        ".parquet) selects the format.",
    ),
    argument("--columns A,B", "Show only these columns; docs/tables.md lists all."),
    argument(
        "--sort COLUMN",
        "Sort by this column: numbers in descending order, text from a to z.",
    ),
    argument(
        "--where QUERY",
        "Show only matching rows, as in 'kind = gemm and dur > 50us'. The syntax is that of "
        "the app's search.",
    ),
)
"""Any of these asks for the answer as a table."""

AS_TABLE = tuple(argument.name.lstrip("-") for argument in TABLE)
"""The names under which the parsed arguments hold those of TABLE."""

MODULES = {
    "capture": "record",
    "check": "answers",
    "completion": "about",
    "convert": "cut",
    "decode": "about",
    "gaps": "why",
    "help": "about",
    "kernels": "answers",
    "launches": "answers",
    "lines": "answers",
    "mcp": "about",
    "modules": "answers",
    "ops": "answers",
    "path": "why",
    "perfetto": "cut",
    "report": "picture",
    "samples": "about",
    "schema": "about",
    "scrub": "cut",
    "serving": "answers",
    "slices": "tables",
    "sql": "tables",
    "stacks": "picture",
    "steps": "tables",
    "summary": "answers",
    "tutor": "open",
    "watch": "open",
    "whatif": "why",
}
"""The module of `fusetui.commands` that carries out a command, where it is not named as
the command is."""
WITH_TABLES_OF_THEIR_OWN = ("ranks", "memory")
"""Commands whose own module makes their answer as a table; that of others is made by
`commands.tables`."""


class Command(NamedTuple):
    """`help` is one line; `more` is shown below it in the command's own help.

    `arguments` may be a function where they take time to import; it is called only when
    the command is requested. `open_ended`: arguments that the parser does not know are
    passed to the command in `args.rest` instead of being rejected.
    """

    name: str
    help: str
    arguments: tuple[Argument, ...] | Callable[[], tuple[Argument, ...]]
    more: str = ""
    open_ended: bool = False

    def all_arguments(self) -> tuple[Argument, ...]:
        """Return the arguments, imported if necessary."""
        return self.arguments() if callable(self.arguments) else self.arguments

    def run(self, args: Namespace) -> int:
        """Carry out the command with these parsed arguments and return its exit code.
        If an argument asks for a table, the answer is printed as one."""
        is_always_table = self.name == "sql"
        if not is_always_table and self._asks_for_table(args):
            module = self.name if self.name in WITH_TABLES_OF_THEIR_OWN else "tables"
            return _call_command(module, "show", args)

        has_default_rows = "top" in args and args.top is None
        if not is_always_table and has_default_rows:
            args.top = ROWS
        module = MODULES.get(self.name, self.name)
        return _call_command(module, f"run_{self.name}", args)

    def _asks_for_table(self, args: Namespace) -> bool:
        """Return whether an argument asks for the answer as a table. For `launches`,
        --top does too, because its usual answer has no rows to limit."""
        given_arguments = vars(args)
        names = (*AS_TABLE, "top") if self.name == "launches" else AS_TABLE
        return any(given_arguments.get(name) not in (None, []) for name in names)


def _call_command(module: str, function: str, args: Namespace) -> int:
    """Import a module of `fusetui.commands`, call one of its functions with the
    arguments, and return the exit code."""
    run = getattr(import_module(f"fusetui.commands.{module}"), function)
    exit_code: int = run(args)
    return exit_code
