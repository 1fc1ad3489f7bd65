"""A diff as text for a terminal and as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Generic, TypeVar

import msgspec

from fusetui.analysis.diff.model import (
    Accounting,
    Answer,
    Diff,
    DiffSide,
    Row,
    Subtotal,
)
from fusetui.analysis.diff.statistics import CONFIDENCE
from fusetui.report import printed
from fusetui.report.diff_lines import DiffLine, closing, largest, lines
from fusetui.text.cutting import clip
from fusetui.text.figures import (
    change,
    count,
    duration,
    microseconds,
    multiple,
    pace,
    percent,
    plural,
    signed_duration,
)
from fusetui.text.printable import markdown, printable
from fusetui.trace.layout.steps import StepLength

MAX_TEXT_LINES = 40
"""Of the table."""

MAX_MARKDOWN_LINES = 12
MAX_MARKDOWN_NOTES = 6
MIN_WIDTH = 60
"""Cells of a line of text; a narrower terminal breaks the lines."""

MAX_FOLDS = 3
"""Lines of one text beside the numbers of a row."""

MAX_SUBTOTALS = 5
"""By sort of work, and by place."""

MAX_PLACE_CELLS = 40
"""Of the name of a module, or of a file."""

NUMBER_CELLS = 10
KIND_CELLS = 12


Value = TypeVar("Value")


class Sides(msgspec.Struct, Generic[Value], frozen=True):
    """The same of both sides."""

    a: Value
    b: Value


class StepTimes(msgspec.Struct, frozen=True):
    """The median step of both sides; see StepChange."""

    a: int | None
    b: int | None
    ratio: float | None
    low: float | None
    high: float | None


class DiffDocument(msgspec.Struct, frozen=True):
    """`diff` of one pair."""

    a: str
    b: str
    step_ns: StepTimes
    drift: Sides[float]
    turns: bool
    interrupted: Sides[float]
    verdict: Answer
    reason: str | None
    steps: Sides[int]
    rows: tuple[Row, ...]
    accounting: Accounting
    sides: Sides[DiffSide]
    notes: tuple[str, ...]
    story: str
    by_work: tuple[Subtotal, ...]
    by_place: tuple[Subtotal, ...]


class DiffsDocument(msgspec.Struct, frozen=True):
    """`diff` of several pairs."""

    diffs: list[DiffDocument]


def document(diff: Diff) -> DiffDocument:
    """Return what `diff --json` prints of one pair of traces."""
    step = diff.step
    return printed(
        diff,
        DiffDocument,
        step_ns=StepTimes(
            a=step.a_ns,
            b=step.b_ns,
            ratio=step.ratio,
            low=step.low,
            high=step.high,
        ),
        drift=Sides(a=step.drift_a, b=step.drift_b),
        turns=step.turns,
        interrupted=Sides(a=step.interrupted_a, b=step.interrupted_b),
        verdict=diff.verdict.answer,
        reason=diff.verdict.reason,
        steps=Sides(a=diff.side_a.steps, b=diff.side_b.steps),
        sides=Sides(a=diff.side_a, b=diff.side_b),
    )


def format_diff(diff: Diff, width: int = 118) -> str:
    """Return a diff as text with lines of at most `width` cells (MIN_WIDTH or more).
    The table has the MAX_TEXT_LINES lines of largest effect, the sum of the others, and
    the lines that close the sum."""
    width = max(width, MIN_WIDTH)
    body = _wrap_words(_format_first_line(diff), width, "")
    sentences = [diff.story, _format_totals(diff), *_format_subtotals(diff)]
    sentences += [f"! {printable(note)}" for note in diff.notes]
    for sentence in sentences:
        body += _wrap_words(sentence, width, "  ")
    body += ["-" * width, clip(_format_titles(), width)]
    changes = largest(lines(diff), MAX_TEXT_LINES)
    shown = [*changes.shown]
    if changes.rest:
        shown.append(_sum_smaller_changes(changes.rest))
    for line in (*shown, *closing(diff)):
        body += _format_row(line, width)
    if any(not line.counts for line in (*changes.shown, *changes.rest)):
        overlap_remark = (
            "Values in parentheses overlap other work and are excluded from the total."
        )
        body += _wrap_words(overlap_remark, width, "")
    return "\n".join(body) + "\n"


def _format_titles() -> str:
    """Return the titles of the columns that `_format_row` prints."""
    numbers = " ".join(
        title.rjust(NUMBER_CELLS) for title in ("A us", "B us", "change")
    )
    return f"    {numbers}  what"


def _sum_smaller_changes(rest: Sequence[DiffLine]) -> DiffLine:
    """Return one line that stands for all changes of smaller effect. Only changes that
    count in the sum are added up."""
    return DiffLine(
        mark="",
        kind="",
        a_ns=None,
        b_ns=None,
        change_ns=sum(line.change_ns for line in rest if line.counts),
        what=f"{plural(len(rest), 'smaller change')}",
    )


def format_markdown(diff: Diff) -> str:
    """Return a diff as Markdown for a pull request: the verdict, a table of the largest
    changes, and the first notes. Changes that may be noise are left out."""
    beyond_noise = (line for line in lines(diff) if line.mark != "~")
    changes = largest(beyond_noise, MAX_MARKDOWN_LINES)
    pair = f"{markdown(diff.a)} -> {markdown(diff.b)}"
    markdown_lines = [f"**{pair}: {markdown(judgment(diff))}**", ""]
    if diff.story:
        story = f"{diff.story[0].upper()}{diff.story[1:]}"
        markdown_lines += [f"{markdown(story)}.", ""]
    markdown_lines += [
        "| | A us | B us | change us | what |",
        "|---|---:|---:|---:|---|",
    ]
    for line in (*changes.shown, *closing(diff)):
        markdown_lines.append(_format_markdown_row(line))
    if changes.rest:
        markdown_lines += [
            "",
            f"Not shown: {plural(len(changes.rest), 'smaller change')}.",
        ]
    markdown_lines.append("")
    for note in diff.notes[:MAX_MARKDOWN_NOTES]:
        markdown_lines.append(f"* {markdown(note)}")
    more_notes = len(diff.notes) - MAX_MARKDOWN_NOTES
    if more_notes > 0:
        markdown_lines.append(f"* and {plural(more_notes, 'more note')}")
    return "\n".join(markdown_lines).rstrip() + "\n"


def _format_markdown_row(line: DiffLine) -> str:
    """Return one line of the table of changes in Markdown."""
    a = microseconds(line.a_ns)
    b = microseconds(line.b_ns)
    change_text = markdown(line.what)
    if line.why:
        change_text += f" ({markdown(line.why)})"
    return f"| {line.mark} {line.kind} | {a} | {b} | {_format_change(line)} | {change_text} |"


def _format_first_line(diff: Diff) -> str:
    """Return the first line of a diff: the step of A, the step of B, and how B
    compares."""
    step_a = _format_step(diff.step.length_a, diff.step.a_ns)
    step_b = _format_step(diff.step.length_b, diff.step.b_ns)
    a = f"A {printable(diff.a)}   {step_a}"
    b = f"B {printable(diff.b)}   {step_b}"
    return f"{a}     {b}     {judgment(diff)}"


def _format_step(length: StepLength, ns: int | None) -> str:
    """Return what kind of step a side has and how long it takes (`ns`), or "no work"
    for None."""
    return "no work" if ns is None else f"{length.step} {duration(ns)}"


def judgment(diff: Diff) -> str:
    """Return how B compares to A by the time of a step, such as:

        B is 16.5 % faster (95 % CI 15.2 to 18.1 % within these two runs, 20 steps)

    Without a verdict, it says why there is none, and what was measured.
    """
    if diff.verdict.answer is Answer.CANNOT_TELL:
        return _explain_undecided(diff)
    a_steps = diff.side_a.steps
    b_steps = diff.side_b.steps
    steps = plural(b_steps, "step")
    if a_steps != b_steps:
        steps = f"{count(a_steps)} and {steps}"
    step = diff.step
    ratio = 1.0 if step.ratio is None else step.ratio
    compared = f"{_compare_steps(1.0, ratio)}{_explain_percentage(diff)} ({_format_interval(diff)}, {steps})"
    if not step.shown:
        return f"No significant difference: {compared}"
    verb = "takes" if multiple(1.0, ratio) else "is"
    return f"B {verb} {compared}"


def _explain_undecided(diff: Diff) -> str:
    """Return why a diff has no verdict, and what was observed if both sides have a
    step.

        Inconclusive: needs at least 5 steps per trace (A 3, B 3). Observed: B 3.0 % faster
    """
    reason = printable(diff.verdict.reason or "")
    a_ns = diff.step.a_ns
    b_ns = diff.step.b_ns
    if not a_ns or b_ns is None:
        return f"Inconclusive: {reason}"
    return f"Inconclusive: {reason}. Observed: B {_compare_steps(a_ns, b_ns)}"


def _compare_steps(a: float, b: float) -> str:
    """Return how the time of a step in B compares to that in A. Examples: `3.0 %
    faster`, `12 times as long`, `as fast as A`."""
    return "as fast as A" if a == b else pace(a, b)


def _explain_percentage(diff: Diff) -> str:
    """Return what the percentage of a verdict is of, if the medians of all steps say
    the opposite; else ""."""
    step = diff.step
    if not step.is_opposed:
        return ""
    median = change(step.a_ns or 0, step.b_ns or 0)
    by = "by the ratios of neighboring steps" if step.turns else "without interruptions"
    return f" {by}, but the median step takes {median} time"


def _format_interval(diff: Diff) -> str:
    """Return the confidence interval of the change, such as `95 % CI 15.2 to 18.1 %
    within these two runs`.

    It is `1.2 % slower to 0.4 % faster` if it includes no change. Bounds of several
    times are written as `12.1 to 12.6 times`.
    """
    step = diff.step
    low_times = multiple(1.0, step.low or 0.0)
    high_times = multiple(1.0, step.high or 0.0)
    if low_times and high_times:
        interval = f"{low_times.removesuffix(' times')} to {high_times}"
        return f"{CONFIDENCE} % CI {interval} within these two runs"
    is_slower = step.ratio is not None and step.ratio > 1
    bounds = []
    for ratio in (step.low or 0.0, step.high or 0.0):
        bounds.append(ratio - 1 if is_slower else 1 - ratio)
    low = min(bounds)
    high = max(bounds)
    if low < 0 < high:
        same, opposite = ("slower", "faster") if is_slower else ("faster", "slower")
        low_text = f"{percent(-low, 1, fine=True)} {opposite}"
        high_text = f"{percent(high, 1, fine=True)} {same}"
    else:
        low_text = percent(low, 1, fine=True)
        high_text = percent(high, 1, fine=True)
    interval = f"{low_text.removesuffix(' %')} to {high_text}"
    return f"{CONFIDENCE} % CI {interval} within these two runs"


def _format_totals(diff: Diff) -> str:
    """Return the second line of a diff: pieces of work, busy and idle time of a step on
    both sides. CPU time is added if a side has a GPU."""
    a = diff.side_a
    b = diff.side_b
    has_gpu = a.gpu or b.gpu
    if a.gpu and b.gpu:
        busy = "GPU busy"
    elif has_gpu:
        busy = "busy"
    else:
        busy = "CPU busy"
    parts = [
        f"per step: {count(a.items)} -> {plural(b.items, _choose_work_noun(a, b))}",
        f"{busy} {duration(a.busy_ns)} -> {duration(b.busy_ns)}",
        f"idle {duration(a.idle_ns)} -> {duration(b.idle_ns)}",
    ]
    if has_gpu:
        parts.append(f"CPU {duration(a.cpu_ns)} -> {duration(b.cpu_ns)}")
    return "   ".join(parts)


def format_sides(diff: Diff) -> list[str]:
    """Return one line for each side, with equal fields below each other: name, step,
    work, busy, idle and CPU time, number of steps."""
    has_gpu = diff.side_a.gpu or diff.side_b.gpu
    step_a = _format_step(diff.step.length_a, diff.step.a_ns)
    step_b = _format_step(diff.step.length_b, diff.step.b_ns)
    rows = [
        _format_side_fields("A", diff.side_a, step_a, has_gpu),
        _format_side_fields("B", diff.side_b, step_b, has_gpu),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    side_by_side = []
    for fields in rows:
        padded = [
            field.ljust(width) for field, width in zip(fields, widths, strict=True)
        ]
        side_by_side.append("   ".join(padded).rstrip())
    return side_by_side


def _format_side_fields(
    letter: str, side: DiffSide, step: str, has_gpu: bool
) -> list[str]:
    """Return the fields of one side as texts. `step` says how long a step takes.
    Without a GPU on either side (`has_gpu`), the field of CPU time is empty, as busy
    time has it."""
    fields = [
        f"{letter} {clip(printable(side.label), MAX_PLACE_CELLS)}",
        step,
        plural(side.items, _choose_work_noun(side, side)),
        f"busy {duration(side.busy_ns)}",
        f"idle {duration(side.idle_ns)}",
    ]
    fields.append(f"CPU {duration(side.cpu_ns)}" if has_gpu else "")
    fields.append(plural(side.steps, "step"))
    return fields


def _format_subtotals(diff: Diff) -> list[str]:
    """Return a sentence for each way to add up the changes, by sort of work and by
    place. A way with a single part is left out."""
    texts = []
    if len(diff.by_work) > 1:
        # Of a sort of work it does not matter who made the kernels.
        by_work = [msgspec.structs.replace(part, compiled="") for part in diff.by_work]
        texts.append(f"by work: {_format_largest_subtotals(by_work)}")
    if len(diff.by_place) > 1:
        texts.append(f"by place: {_format_largest_subtotals(diff.by_place)}")
    return texts


def _format_largest_subtotals(subtotals: Sequence[Subtotal]) -> str:
    """Return the subtotals that changed, at most MAX_SUBTOTALS by name and the rest as
    one sum.

        gemm 9 ms -> 8 ms (-1 ms), ..., 3 more +20 us
    """
    changed = [part for part in subtotals if part.change_ns]
    if not changed:
        return "no change"
    texts = []
    for part in changed[:MAX_SUBTOTALS]:
        times = f"{duration(part.a_ns)} -> {duration(part.b_ns)}"
        difference = signed_duration(part.change_ns)
        texts.append(f"{_format_subtotal_name(part)} {times} ({difference})")
    smaller_subtotals = changed[MAX_SUBTOTALS:]
    if smaller_subtotals:
        rest_ns = sum(part.change_ns for part in smaller_subtotals)
        texts.append(f"{count(len(smaller_subtotals))} more {signed_duration(rest_ns)}")
    return ", ".join(texts)


def _format_subtotal_name(part: Subtotal) -> str:
    """Return the name of a subtotal: its phase and its place or sort of work, such as
    `backward (compiled)`. It is "elsewhere" without both."""
    if not part.phase and not part.name:
        return "elsewhere"
    words = [word for word in (part.phase, part.name) if word]
    name = clip(printable(" ".join(words)), MAX_PLACE_CELLS)
    return f"{name} (compiled)" if part.compiled == "b" else name


def _choose_work_noun(a: DiffSide, b: DiffSide) -> str:
    """Return what the pieces of work of both sides are called, which depends on whether
    they have a GPU."""
    if a.gpu and b.gpu:
        return "GPU event"
    if a.gpu or b.gpu:
        return "work item"
    return "working op"


def _format_row(line: DiffLine, width: int) -> Iterator[str]:
    """Yield the lines of text for one line of the table: its numbers and what it is.
    The reason stands behind it, or below if there is no room."""
    if line.a_ns is None and line.b_ns is None:
        a = ""
        b = ""
    else:
        a = microseconds(line.a_ns)
        b = microseconds(line.b_ns)
    mark = line.mark or " "
    numbers = " ".join(
        number.rjust(NUMBER_CELLS) for number in (a, b, _format_change(line))
    )
    head = f"  {mark} {numbers}  {line.kind.ljust(KIND_CELLS)} "
    rest_cells = width - len(head)
    what_and_why = f"{line.what}   {line.why}"
    if len(what_and_why) <= rest_cells:
        text_lines = [what_and_why]
    else:
        text_lines = _wrap_and_limit(line.what, rest_cells)
        if line.why:
            text_lines += _wrap_and_limit(line.why, rest_cells)
    line_start = head
    for text in text_lines:
        yield f"{line_start}{text}".rstrip()
        line_start = " " * len(head)


def _wrap_and_limit(text: str, width: int) -> list[str]:
    """Return a text as at most MAX_FOLDS lines. If it has more, the last line is cut
    and ends with an ellipsis."""
    folds = _wrap_words(text, width, "")
    if len(folds) <= MAX_FOLDS:
        return folds
    whole_folds = folds[: MAX_FOLDS - 1]
    cut_text = " ".join(folds[MAX_FOLDS - 1 :])
    return [*whole_folds, clip(cut_text, width)]


def _wrap_words(text: str, width: int, indent: str) -> list[str]:
    """Return a text as lines of whole words; a word longer than `width` cells is cut.
    All lines but the first begin with `indent`."""
    wrapped = wrap(
        text,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [clip(line, width) for line in wrapped]


def _format_change(line: DiffLine) -> str:
    """Return the change of a line in us with its sign. It is in parentheses if it does
    not count in the sum."""
    difference = microseconds(line.change_ns, signed=True)
    return difference if line.counts else f"({difference})"
