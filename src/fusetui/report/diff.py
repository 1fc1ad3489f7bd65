"""A diff as text for a terminal and as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
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
    percent,
    plural,
    signed_duration,
    signed_percent,
)
from fusetui.text.printable import markdown, printable
from fusetui.trace.layout.steps import StepLength

TEXT_LINES = 40
MARKDOWN_LINES = 12
MARKDOWN_NOTES = 6
MAX_FOLDS = 3
PARTS = 5  # of each kind of sum
PLACE = 40  # cells of a module's name
_NUMBER = 10
_KIND = 12


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


def document(found: Diff) -> DiffDocument:
    step, a, b = found.step, found.side_a, found.side_b
    return printed(
        found,
        DiffDocument,
        step_ns=StepTimes(step.a_ns, step.b_ns, step.ratio, step.low, step.high),
        drift=Sides(step.drift_a, step.drift_b),
        turns=step.turns,
        interrupted=Sides(step.interrupted_a, step.interrupted_b),
        verdict=found.verdict.answer,
        reason=found.verdict.reason,
        steps=Sides(a.steps, b.steps),
        sides=Sides(a, b),
    )


def to_text(diff: Diff, width: int = 118) -> str:
    """A table at most `width` columns wide; of many lines only the TEXT_LINES of
    largest effect, and none that has no time on either side."""
    width = max(width, 60)
    changes = largest(lines(diff), TEXT_LINES)
    shown = changes.shown
    rest = changes.rest
    body = _wrapped(answer(diff), width, "")
    notes = (f"! {printable(note)}" for note in diff.notes)
    for said in (diff.story, totals(diff), *sums(diff), *notes):
        body += _wrapped(said, width, "  ")
    head = f"    {'A us':>{_NUMBER}} {'B us':>{_NUMBER}} {'change':>{_NUMBER}}  what"
    body += ["-" * width, clip(head, width)]
    last = closing(diff)
    if rest:
        change = sum(line.change_ns for line in rest if line.counts)
        what = f"{plural(len(rest), 'line')} of smaller effect"
        last = [DiffLine("", "", None, None, change, what), *last]
    for line in (*shown, *last):
        body += _row(line, width)
    if any(not line.counts for line in [*shown, *rest]):
        body += _wrapped(
            "( ) runs beside the rest and is not part of the sum", width, ""
        )
    return "\n".join(body) + "\n"


def to_markdown(diff: Diff) -> str:
    """The verdict, the largest changes as a table, and the notes; short enough to be
    read."""
    beyond_noise = (line for line in lines(diff) if line.mark != "~")
    changes = largest(beyond_noise, MARKDOWN_LINES)
    body = [
        f"**{markdown(diff.a)} -> {markdown(diff.b)}: {markdown(judgment(diff))}**",
        "",
    ]
    body += (
        [f"{markdown(diff.story[:1].upper() + diff.story[1:])}.", ""]
        if diff.story
        else []
    )
    body += ["| | A us | B us | change us | what |", "|---|---:|---:|---:|---|"]
    for line in (*changes.shown, *closing(diff)):
        numbers = (
            f"{microseconds(line.a_ns)} | {microseconds(line.b_ns)} | {_change(line)}"
        )
        what = (
            f"{markdown(line.what)} ({markdown(line.why)})"
            if line.why
            else markdown(line.what)
        )
        body.append(f"| {line.mark} {line.kind} | {numbers} | {what} |")
    if changes.rest:
        body += ["", f"{plural(len(changes.rest), 'smaller line')} not shown."]
    notes = [markdown(note) for note in diff.notes]
    body += ["", *(f"* {note}" for note in notes[:MARKDOWN_NOTES])]
    if len(notes) > MARKDOWN_NOTES:
        body.append(f"* and {plural(len(notes) - MARKDOWN_NOTES, 'more note')}")
    return "\n".join(body).rstrip() + "\n"


def answer(diff: Diff) -> str:
    """The first line: both steps, and how B compares."""
    step = diff.step
    a, b = _step(step.length_a, step.a_ns), _step(step.length_b, step.b_ns)
    sides = f"A {printable(diff.a)}   {a}     B {printable(diff.b)}   {b}"
    return f"{sides}     {judgment(diff)}"


def _step(length: StepLength, ns: int | None) -> str:
    return "no work" if ns is None else f"{length.step} {duration(ns)}"


def judgment(diff: Diff) -> str:
    """`B is 16.5 % faster (95 % CI 15.2 to 18.1 % within these two runs, 20 steps)`, by
    step time.

    Without a verdict: why there is none, and what was measured.
    """
    step, found = diff.step, diff.verdict
    if found.answer is Answer.CANNOT_TELL:
        times = (
            change(step.a_ns, step.b_ns) if step.a_ns and step.b_ns is not None else ""
        )
        measured = f"; B takes {times} time" if times else ""
        return f"cannot tell: {printable(found.reason or '')}{measured}"
    a, b = diff.side_a.steps, diff.side_b.steps
    steps = plural(b, "step") if a == b else f"{count(a)} and {plural(b, 'step')}"
    ratio = 1.0 if step.ratio is None else step.ratio
    share = percent(abs(ratio - 1), 1, fine=True)
    by = (
        f"{share} {'faster' if ratio < 1 else 'slower'}"
        if ratio != 1
        else "as fast as A"
    )
    by += _meaning(diff)
    by += f" ({_interval(diff)}, {steps})"
    return f"no significant difference: {by}" if not step.shown else f"B is {by}"


def _meaning(diff: Diff) -> str:
    """What the percentage is, where the medians of all steps say the opposite."""
    step = diff.step
    if not step.is_opposed:
        return ""
    medians = (
        f"while the median step takes {change(step.a_ns or 0, step.b_ns or 0)} time"
    )
    if step.turns:
        return f" by the ratios of neighboring steps, {medians}"
    return f" without interruptions, {medians}"


def _interval(diff: Diff) -> str:
    """`95 % CI 15.2 to 18.1 % within these two runs`, in the terms of `judgment`; with
    signs if it includes no change."""
    step = diff.step
    sign = 1 if (step.ratio or 0) <= 1 else -1
    low, high = sorted(sign * (1 - bound) for bound in (step.low or 0, step.high or 0))
    text = signed_percent if low < 0 < high else partial(percent, fine=True)
    least, most = text(low, 1).removesuffix(" %"), text(high, 1)
    return f"{CONFIDENCE} % CI {least} to {most} within these two runs"


def totals(diff: Diff) -> str:
    """The second line: pieces of work, busy and idle time of a step on both sides."""
    a, b = diff.side_a, diff.side_b
    who = "GPU busy" if a.gpu and b.gpu else "busy" if a.gpu or b.gpu else "CPU busy"
    parts = [
        f"a step: {count(a.items)} -> {plural(b.items, _thing(a, b))}",
        f"{who} {duration(a.busy_ns)} -> {duration(b.busy_ns)}",
        f"idle {duration(a.idle_ns)} -> {duration(b.idle_ns)}",
        f"CPU {duration(a.cpu_ns)} -> {duration(b.cpu_ns)}" if a.gpu or b.gpu else "",
    ]
    return "   ".join(part for part in parts if part)


def side_lines(diff: Diff) -> list[str]:
    """One line for each side, with the same fields below each other."""
    a, b, step = diff.side_a, diff.side_b, diff.step
    rows = [
        [
            f"{name} {clip(printable(side.label), PLACE)}",
            _step(length, ns),
            plural(side.items, _thing(side, side)),
            f"busy {duration(side.busy_ns)}",
            f"idle {duration(side.idle_ns)}",
            f"CPU {duration(side.cpu_ns)}" if a.gpu or b.gpu else "",
            plural(side.steps, "step"),
        ]
        for name, side, length, ns in (
            ("A", a, step.length_a, step.a_ns),
            ("B", b, step.length_b, step.b_ns),
        )
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def sums(diff: Diff) -> list[str]:
    """The sums by sort of work and by place, the largest changes of each."""
    work = [msgspec.structs.replace(part, compiled="") for part in diff.by_work]
    by = (("work", work), ("place", diff.by_place))
    return [f"by {name}: {_parts(parts)}" for name, parts in by if len(parts) > 1]


def _parts(parts: Sequence[Subtotal]) -> str:
    changed = [part for part in parts if part.change_ns]
    named = []
    # `backward, compiled`, with the place where there is one
    for part in changed[:PARTS]:
        words = [part.phase, part.name or ("" if part.phase else "elsewhere")]
        name = clip(printable(" ".join(word for word in words if word)), PLACE)
        name += " (compiled)" if part.compiled == "b" and part.phase + part.name else ""
        times = f"{duration(part.a_ns)} -> {duration(part.b_ns)}"
        named.append(f"{name} {times} ({signed_duration(part.change_ns)})")
    if rest := changed[PARTS:]:
        more = signed_duration(sum(part.change_ns for part in rest))
        named.append(f"{count(len(rest))} more {more}")
    return ", ".join(named) or "no change"


def _thing(a: DiffSide, b: DiffSide) -> str:
    return (
        "GPU event"
        if a.gpu and b.gpu
        else "piece of work"
        if a.gpu or b.gpu
        else "working op"
    )


def _row(line: DiffLine, width: int) -> Iterator[str]:
    """The numbers and what it is; the reason behind it or, where there is no room,
    below."""
    numbers = (
        f"{microseconds(line.a_ns):>{_NUMBER}} {microseconds(line.b_ns):>{_NUMBER}}"
    )
    if line.a_ns is None and line.b_ns is None:
        numbers = " " * len(numbers)
    head = f"  {line.mark or ' '} {numbers} {_change(line):>{_NUMBER}}  {line.kind:<{_KIND}} "
    room = width - len(head)
    fits = len(line.what) + 3 + len(line.why) <= room
    what = [f"{line.what}   {line.why}"] if fits else _folded(line.what, room)
    below = [] if fits or not line.why else _folded(line.why, room)
    for number, text in enumerate([*what, *below]):
        yield f"{' ' * len(head) if number else head}{text}".rstrip()


def _folded(text: str, width: int) -> list[str]:
    """At most MAX_FOLDS lines; the last one shows that more was cut."""
    found = _wrapped(text, width, "")
    if len(found) <= MAX_FOLDS:
        return found
    return [*found[: MAX_FOLDS - 1], clip(" ".join(found[MAX_FOLDS - 1 :]), width)]


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    """Lines of whole words; a word longer than the width is cut."""
    lines = wrap(
        text,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [clip(line, width) for line in lines]


def _change(line: DiffLine) -> str:
    """In parentheses if it is no part of the sum."""
    change = microseconds(line.change_ns, signed=True)
    return change if line.counts else f"({change})"
