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
    """What `diff --json` prints of one pair."""
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


def to_text(diff: Diff, width: int = 118) -> str:
    """A table at most `width` columns wide; of many lines only the MAX_TEXT_LINES of
    largest effect, and none that has no time on either side."""
    width = max(width, MIN_WIDTH)
    body = _wrapped(_first_line(diff), width, "")
    sentences = [diff.story, _totals(diff), *_sums(diff)]
    sentences += [f"! {printable(note)}" for note in diff.notes]
    for sentence in sentences:
        body += _wrapped(sentence, width, "  ")
    body += ["-" * width, clip(_titles(), width)]
    changes = largest(lines(diff), MAX_TEXT_LINES)
    shown = [*changes.shown]
    if changes.rest:
        shown.append(_line_of_rest(changes.rest))
    for line in (*shown, *closing(diff)):
        body += _row(line, width)
    if any(not line.counts for line in (*changes.shown, *changes.rest)):
        beside = (
            "Values in parentheses overlap other work and are excluded from the total."
        )
        body += _wrapped(beside, width, "")
    return "\n".join(body) + "\n"


def _titles() -> str:
    """Those of the columns that `_row` prints."""
    numbers = " ".join(
        title.rjust(NUMBER_CELLS) for title in ("A us", "B us", "change")
    )
    return f"    {numbers}  what"


def _line_of_rest(rest: Sequence[DiffLine]) -> DiffLine:
    """One line for those of smaller effect."""
    return DiffLine(
        mark="",
        kind="",
        a_ns=None,
        b_ns=None,
        change_ns=sum(line.change_ns for line in rest if line.counts),
        what=f"{plural(len(rest), 'smaller change')}",
    )


def to_markdown(diff: Diff) -> str:
    """The verdict, the largest changes as a table, and the notes; short enough to be
    read."""
    beyond_noise = (line for line in lines(diff) if line.mark != "~")
    changes = largest(beyond_noise, MAX_MARKDOWN_LINES)
    pair = f"{markdown(diff.a)} -> {markdown(diff.b)}"
    body = [f"**{pair}: {markdown(judgment(diff))}**", ""]
    if diff.story:
        story = f"{diff.story[0].upper()}{diff.story[1:]}"
        body += [f"{markdown(story)}.", ""]
    body += ["| | A us | B us | change us | what |", "|---|---:|---:|---:|---|"]
    for line in (*changes.shown, *closing(diff)):
        body.append(_markdown_row(line))
    if changes.rest:
        body += ["", f"{plural(len(changes.rest), 'smaller change')} not shown."]
    body.append("")
    for note in diff.notes[:MAX_MARKDOWN_NOTES]:
        body.append(f"* {markdown(note)}")
    more_notes = len(diff.notes) - MAX_MARKDOWN_NOTES
    if more_notes > 0:
        body.append(f"* and {plural(more_notes, 'more note')}")
    return "\n".join(body).rstrip() + "\n"


def _markdown_row(line: DiffLine) -> str:
    a = microseconds(line.a_ns)
    b = microseconds(line.b_ns)
    what = markdown(line.what)
    if line.why:
        what += f" ({markdown(line.why)})"
    return f"| {line.mark} {line.kind} | {a} | {b} | {_change(line)} | {what} |"


def _first_line(diff: Diff) -> str:
    """The first line: both steps, and how B compares."""
    step_a = _step(diff.step.length_a, diff.step.a_ns)
    step_b = _step(diff.step.length_b, diff.step.b_ns)
    a = f"A {printable(diff.a)}   {step_a}"
    b = f"B {printable(diff.b)}   {step_b}"
    return f"{a}     {b}     {judgment(diff)}"


def _step(length: StepLength, ns: int | None) -> str:
    return "no work" if ns is None else f"{length.step} {duration(ns)}"


def judgment(diff: Diff) -> str:
    """`B is 16.5 % faster (95 % CI 15.2 to 18.1 % within these two runs, 20 steps)`, by
    step time.

    Without a verdict: why there is none, and what was measured.
    """
    if diff.verdict.answer is Answer.CANNOT_TELL:
        return _undecided(diff)
    a_steps = diff.side_a.steps
    b_steps = diff.side_b.steps
    steps = plural(b_steps, "step")
    if a_steps != b_steps:
        steps = f"{count(a_steps)} and {steps}"
    step = diff.step
    ratio = 1.0 if step.ratio is None else step.ratio
    compared = f"{_pace(1.0, ratio)}{_meaning(diff)} ({_interval(diff)}, {steps})"
    if not step.shown:
        return f"No significant difference: {compared}"
    verb = "takes" if multiple(1.0, ratio) else "is"
    return f"B {verb} {compared}"


def _undecided(diff: Diff) -> str:
    """`Inconclusive: needs at least 5 steps per trace (A 3, B 3). Observed: B 3.0 %
    faster`."""
    reason = printable(diff.verdict.reason or "")
    a_ns = diff.step.a_ns
    b_ns = diff.step.b_ns
    if not a_ns or b_ns is None:
        return f"Inconclusive: {reason}"
    return f"Inconclusive: {reason}. Observed: B {_pace(a_ns, b_ns)}"


def _pace(a: float, b: float) -> str:
    """`3.0 % faster`, `3.0 % slower`, `12 times as long` or `as fast as A`: the time of
    a step in B beside that in A."""
    return "as fast as A" if a == b else pace(a, b)


def _meaning(diff: Diff) -> str:
    """What the percentage is, where the medians of all steps say the opposite."""
    step = diff.step
    if not step.is_opposed:
        return ""
    median = change(step.a_ns or 0, step.b_ns or 0)
    by = "by the ratios of neighboring steps" if step.turns else "without interruptions"
    return f" {by}, but the median step takes {median} time"


def _interval(diff: Diff) -> str:
    """`95 % CI 15.2 to 18.1 % within these two runs`: by how much B is faster, or
    slower where `judgment` says that; `1.2 % slower to 0.4 % faster` if it includes no
    change, and `12.1 to 12.6 times` where both bounds are so many."""
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


def _totals(diff: Diff) -> str:
    """The second line: pieces of work, busy and idle time of a step on both sides."""
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
        f"per step: {count(a.items)} -> {plural(b.items, _noun_of_work(a, b))}",
        f"{busy} {duration(a.busy_ns)} -> {duration(b.busy_ns)}",
        f"idle {duration(a.idle_ns)} -> {duration(b.idle_ns)}",
    ]
    if has_gpu:
        parts.append(f"CPU {duration(a.cpu_ns)} -> {duration(b.cpu_ns)}")
    return "   ".join(parts)


def side_lines(diff: Diff) -> list[str]:
    """One line for each side, with the same fields below each other."""
    has_gpu = diff.side_a.gpu or diff.side_b.gpu
    step_a = _step(diff.step.length_a, diff.step.a_ns)
    step_b = _step(diff.step.length_b, diff.step.b_ns)
    rows = [
        _side_fields("A", diff.side_a, step_a, has_gpu),
        _side_fields("B", diff.side_b, step_b, has_gpu),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    side_by_side = []
    for fields in rows:
        padded = [
            field.ljust(width) for field, width in zip(fields, widths, strict=True)
        ]
        side_by_side.append("   ".join(padded).rstrip())
    return side_by_side


def _side_fields(letter: str, side: DiffSide, step: str, has_gpu: bool) -> list[str]:
    """`step`: how long one takes; `has_gpu`: of one side or both. Without a GPU, the
    CPU's time is the busy time."""
    fields = [
        f"{letter} {clip(printable(side.label), MAX_PLACE_CELLS)}",
        step,
        plural(side.items, _noun_of_work(side, side)),
        f"busy {duration(side.busy_ns)}",
        f"idle {duration(side.idle_ns)}",
    ]
    fields.append(f"CPU {duration(side.cpu_ns)}" if has_gpu else "")
    fields.append(plural(side.steps, "step"))
    return fields


def _sums(diff: Diff) -> list[str]:
    """The sums by sort of work and by place, the largest changes of each."""
    texts = []
    if len(diff.by_work) > 1:
        # Of a sort of work it does not matter who made the kernels.
        by_work = [msgspec.structs.replace(part, compiled="") for part in diff.by_work]
        texts.append(f"by work: {_largest_subtotals(by_work)}")
    if len(diff.by_place) > 1:
        texts.append(f"by place: {_largest_subtotals(diff.by_place)}")
    return texts


def _largest_subtotals(subtotals: Sequence[Subtotal]) -> str:
    """`gemm 9 ms -> 8 ms (-1 ms), ..., 3 more +20 us`."""
    changed = [part for part in subtotals if part.change_ns]
    if not changed:
        return "no change"
    texts = []
    for part in changed[:MAX_SUBTOTALS]:
        times = f"{duration(part.a_ns)} -> {duration(part.b_ns)}"
        difference = signed_duration(part.change_ns)
        texts.append(f"{_subtotal_name(part)} {times} ({difference})")
    rest = changed[MAX_SUBTOTALS:]
    if rest:
        rest_ns = sum(part.change_ns for part in rest)
        texts.append(f"{count(len(rest))} more {signed_duration(rest_ns)}")
    return ", ".join(texts)


def _subtotal_name(part: Subtotal) -> str:
    """`backward (compiled)`, with the place or the sort of work where there is one."""
    if not part.phase and not part.name:
        return "elsewhere"
    words = [word for word in (part.phase, part.name) if word]
    name = clip(printable(" ".join(words)), MAX_PLACE_CELLS)
    return f"{name} (compiled)" if part.compiled == "b" else name


def _noun_of_work(a: DiffSide, b: DiffSide) -> str:
    """What the pieces of work of two sides are called."""
    if a.gpu and b.gpu:
        return "GPU event"
    if a.gpu or b.gpu:
        return "work item"
    return "working op"


def _row(line: DiffLine, width: int) -> Iterator[str]:
    """The lines of the screen for one line of the table: the numbers and what it is;
    the reason behind it or, where there is no room, below."""
    if line.a_ns is None and line.b_ns is None:
        a = ""
        b = ""
    else:
        a = microseconds(line.a_ns)
        b = microseconds(line.b_ns)
    mark = line.mark or " "
    numbers = " ".join(number.rjust(NUMBER_CELLS) for number in (a, b, _change(line)))
    head = f"  {mark} {numbers}  {line.kind.ljust(KIND_CELLS)} "
    rest_cells = width - len(head)
    what_and_why = f"{line.what}   {line.why}"
    if len(what_and_why) <= rest_cells:
        texts = [what_and_why]
    else:
        texts = _folded(line.what, rest_cells)
        if line.why:
            texts += _folded(line.why, rest_cells)
    before = head
    for text in texts:
        yield f"{before}{text}".rstrip()
        before = " " * len(head)


def _folded(text: str, width: int) -> list[str]:
    """At most MAX_FOLDS lines; the last one shows that more was cut."""
    folds = _wrapped(text, width, "")
    if len(folds) <= MAX_FOLDS:
        return folds
    whole_folds = folds[: MAX_FOLDS - 1]
    rest = " ".join(folds[MAX_FOLDS - 1 :])
    return [*whole_folds, clip(rest, width)]


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    """Lines of whole words; a word longer than the width is cut."""
    wrapped = wrap(
        text,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [clip(line, width) for line in wrapped]


def _change(line: DiffLine) -> str:
    """In parentheses if it is no part of the sum."""
    difference = microseconds(line.change_ns, signed=True)
    return difference if line.counts else f"({difference})"
