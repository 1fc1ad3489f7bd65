"""The answer about a job as text, as a JSON document and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from textwrap import wrap

import msgspec

from fusetui.analysis.ranks.model import (
    JobAnswer,
    KindOfCollective,
    LateStep,
    MeanStepChange,
    RankRow,
    Reason,
    StragglerCause,
)
from fusetui.report import printed
from fusetui.report.ranks_words import (
    describe_clocks,
    describe_given,
    describe_straggler,
    describe_verdict,
)
from fusetui.text.figures import count, duration, several, size
from fusetui.text.printable import printable
from fusetui.text.tables import JSON_ALL, Column, text_or_dash, top_table
from fusetui.trace.layout.steps import StepLength

OUTLIER_MARK = "*"
LEGEND = (
    "*: more than 3 scaled median absolute deviations from the median of the "
    "ranks. The columns 'others wait' and 'waits' are"
)
MAX_KINDS = 5
"""Of collectives."""

MAX_REMARKS = 8
"""About what was given."""

MAX_INFERRED = 4
MIN_DEVICE_CELLS = 12
"""Of the last column of the ranks, before other columns are dropped."""

MIN_BANDWIDTH_CELLS = 8
"""Of that of the collectives."""

UNKNOWN = "-"

CSV_FIGURES = (
    "rank",
    "path",
    "host",
    "device",
    "steps",
    "step_ns",
    "compute_ns",
    "exposed_comm_ns",
    "exposed_copy_ns",
    "idle_ns",
    "collectives",
    "unmatched",
    "last_count",
    "caused_ns",
    "waited_ns",
    "memory_peak_bytes",
    "offset_ns",
    "uncertainty_ns",
    "drift_ns_per_s",
)
"""The columns of CSV that are fields of RankRow."""


def ranks_text(answer: JobAnswer, most: int, top: int) -> str:
    """Return the answer about a job in some forty lines: what was given, the ranks, who
    waits for whom and why, the collectives. `most` is the width in cells, and `top` the
    number of ranks (0: all)."""
    stragglers = [
        describe_straggler(answer, straggler) for straggler in answer.stragglers
    ]
    sections = (
        _wrap_sentences([*_describe_given(answer), describe_clocks(answer)], most),
        _format_rank_table(answer, most, top),
        _wrap_sentences([*stragglers, *describe_verdict(answer)], most),
        _format_kind_table(answer, most),
        _wrap_sentences(_describe_figures(answer), most),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _describe_given(answer: JobAnswer) -> list[str]:
    """Return the first MAX_REMARKS remarks about the traces that were given, and how
    many more there are."""
    remarks = list(describe_given(answer))
    left_out = len(remarks) - MAX_REMARKS
    if left_out <= 0:
        return remarks
    more = f"... and {count(left_out)} more remarks like these (--json has all)"
    return [*remarks[:MAX_REMARKS], more]


class StragglerDocument(msgspec.Struct, frozen=True):
    """A rank that others wait for, as a sentence; see Straggler."""

    rank: int
    last_count: int
    of: int
    caused_ns: int
    waiters: int
    cause: StragglerCause
    stage: int | None
    text: str
    reason: Reason
    late_steps: tuple[LateStep, ...]
    what_if: MeanStepChange | None


class RanksDocument(JobAnswer, frozen=True):
    """`ranks`: sentences instead of their parts."""

    stragglers: tuple[StragglerDocument, ...]  # type: ignore[assignment]
    verdict: tuple[str, ...]  # type: ignore[assignment]


def ranks_document(answer: JobAnswer) -> RanksDocument:
    """Return what `ranks --json` prints: the answer with sentences about the late
    ranks."""
    stragglers = []
    for straggler in answer.stragglers:
        text = describe_straggler(answer, straggler)
        stragglers.append(printed(straggler, StragglerDocument, text=text))
    return printed(
        answer,
        RanksDocument,
        stragglers=tuple(stragglers),
        verdict=tuple(describe_verdict(answer)),
    )


def format_csv(answer: JobAnswer) -> str:
    """Return the answer as CSV, with a line for each rank. Files that are left out
    follow, with the reason."""
    out = io.StringIO()
    lines = csv.DictWriter(
        out, [*CSV_FIGURES, "outliers", "reason"], restval="", lineterminator="\n"
    )
    lines.writeheader()
    for row in answer.ranks:
        figures = {name: getattr(row, name) for name in CSV_FIGURES}
        outliers = " ".join(row.outliers)
        lines.writerow(
            {**figures, "outliers": outliers, "reason": "; ".join(row.damage)}
        )
    for left_out in answer.left_out:
        lines.writerow(
            {"rank": left_out.rank, "path": left_out.path, "reason": left_out.reason}
        )
    return out.getvalue().rstrip("\n")


def _wrap_sentences(sentences: Iterable[str], most: int) -> list[str]:
    """Return the sentences as lines of at most `most` cells, each made printable."""
    lines: list[str] = []
    for sentence in sentences:
        lines += wrap(printable(sentence), most, subsequent_indent="  ")
    return lines


def _format_rank_table(answer: JobAnswer, most: int, top: int) -> list[str]:
    """Return the table of the first `top` ranks (0: all) and how many are left out, in
    a list. Empty if there are no ranks."""
    if not answer.ranks:
        return []
    columns = _make_rank_columns(answer)
    table = top_table(
        columns,
        answer.ranks,
        top,
        most,
        "rank",
        min_last_cells=MIN_DEVICE_CELLS,
        blank=UNKNOWN,
    )
    return [table]


def _make_rank_columns(answer: JobAnswer) -> list[Column]:
    """Return the columns of the table of ranks. The last one is the device, or the host
    if no device is known."""

    def mean_wait(name: str) -> Callable[[RankRow], str]:
        """A wait per step, unless the times of ranks cannot be compared."""
        if answer.clocks.refused:
            return lambda _: UNKNOWN
        return lambda row: _format_time(row, name, steps=max(row.steps, 1))

    def clock(row: RankRow) -> str:
        if row.uncertainty_ns is None or answer.clocks.shared:
            return UNKNOWN
        return f"{duration(row.offset_ns or 0)} ± {duration(row.uncertainty_ns)}"

    length = StepLength.WALL if answer.steps else StepLength.SPAN
    columns = [
        Column("rank", cell=lambda row: str(row.rank)),
        Column("last", cell=_how_often_last),
        Column("others wait", cell=mean_wait("caused_ns")),
        Column("waits", spare=1, cell=mean_wait("waited_ns")),
        Column(str(length), cell=lambda row: _format_time(row, "step_ns")),
        Column("compute", spare=2, cell=lambda row: _format_time(row, "compute_ns")),
        Column(
            "exposed comm",
            spare=3,
            cell=lambda row: _format_time(row, "exposed_comm_ns"),
        ),
        Column("copy", spare=5, cell=lambda row: _format_time(row, "exposed_copy_ns")),
        Column("idle", spare=4, cell=lambda row: _format_time(row, "idle_ns")),
        Column(
            "memory",
            spare=7,
            cell=lambda row: text_or_dash(row.memory_peak_bytes, size),
        ),
        Column("clock", spare=6, cell=clock),
    ]
    if any(row.device for row in answer.ranks):
        device = Column(
            "device", left=True, cell=lambda row: printable(row.device) or UNKNOWN
        )
        return [*columns, device]
    host = Column("host", left=True, cell=lambda row: printable(row.host) or UNKNOWN)
    return [*columns, host]


def _how_often_last(row: RankRow) -> str:
    return f"{count(row.last_count)} of {count(row.collectives)}"


def _format_time(row: RankRow, name: str, steps: int = 1) -> str:
    """Return the field `name` of a rank, a time in ns, divided by `steps`. It has a
    mark if the rank stands out, and is `-` if unknown."""
    ns = getattr(row, name)
    if ns is None:
        return UNKNOWN
    mark = OUTLIER_MARK if name in row.outliers else ""
    return f"{duration(ns // steps)}{mark}"


def _format_kind_table(answer: JobAnswer, most: int) -> list[str]:
    """Return the table of the first kinds of collectives and how many are left out, in
    a list. Empty if there are none."""
    if not answer.kinds:
        return []

    def mean_wait(kind: KindOfCollective) -> str:
        if answer.clocks.refused:
            return UNKNOWN
        return duration(kind.wait_ns // kind.count)

    columns = (
        Column("collective", left=True, cell=lambda kind: printable(kind.name)),
        Column(
            "group",
            left=True,
            spare=1,
            cell=lambda kind: printable(kind.group) or UNKNOWN,
        ),
        Column("ranks", cell=_format_ranks_of_kind),
        Column("size", cell=lambda kind: text_or_dash(kind.bytes, size)),
        Column("count", cell=lambda kind: count(kind.count)),
        Column("waits", cell=mean_wait),
        Column("transfer", cell=lambda kind: text_or_dash(kind.transfer_ns, duration)),
        Column("bus bandwidth", cell=_bus_bandwidth),
    )
    table = top_table(
        columns,
        answer.kinds,
        MAX_KINDS,
        most,
        "kind",
        JSON_ALL,
        min_last_cells=MIN_BANDWIDTH_CELLS,
    )
    return [table]


def _format_ranks_of_kind(kind: KindOfCollective) -> str:
    """Return how many ranks of a group of collectives are given, such as `4 of 8`. Only
    the first number is known in some traces."""
    return f"{kind.given} of {kind.ranks}" if kind.ranks else str(kind.given)


def _bus_bandwidth(kind: KindOfCollective) -> str:
    return text_or_dash(kind.bus_bytes_per_s, lambda rate: f"{size(round(rate))}/s")


def _describe_figures(answer: JobAnswer) -> Iterator[str]:
    """Yield remarks below the tables: what the figures cover, why no gain is estimated,
    and what was inferred."""
    if answer.ranks and answer.steps:
        yield f"Step figures ({StepLength.WALL}) are medians. {LEGEND} per step."
    elif answer.ranks:
        yield f"Figures cover the whole trace, which has no steps. {LEGEND} sums."
    if answer.stragglers and answer.steps and answer.no_what_if:
        yield f"No gain from fixing the delays is estimated, because {answer.no_what_if}."
    if answer.inferred:
        yield f"Inferred, not recorded: {several(answer.inferred, MAX_INFERRED)}."
