"""The answer to `why` in words, for both the command line and the app."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fusetui.analysis.why.model import CLASSES as PARTS
from fusetui.analysis.why.model import (
    IDLE,
    LISTED_DEVICE,
    NEGLIGIBLE_SHARE,
    Gap,
    Share,
    Unknown,
    Why,
    median_step,
    steps_tell,
    totals,
    working,
)
from fusetui.report.cpu_words import cpu_parts, cpu_text
from fusetui.text.cutting import clip, joined
from fusetui.text.cutting import width as cells
from fusetui.text.figures import count, duration, percent, plural, unit_of
from fusetui.text.patterns import late
from fusetui.text.printable import printable
from fusetui.text.tables import GAP, Column, Unseen, cut, table
from fusetui.trace.layout.steps import UP_TO
from fusetui.trace.model.grouping import by_key
from fusetui.trace.model.ids import device_label

CLASSES: Final = {
    "span": "span",
    "compute": "compute",
    "exposed_comm": "communication, exposed",
    "exposed_copy": "copies, exposed",
    "idle": "idle",
}

SHORT_CLASSES: Final = {
    **CLASSES,
    "exposed_comm": "exposed comm",
    "exposed_copy": "exposed copies",
}
"""The same where there is less room."""

REASON_ROWS = 4
NEGLIGIBLE_HEADING = (
    f"negligible findings, each below {percent(NEGLIGIBLE_SHARE, 1)} of the time"
)
LISTED_NS = 1_000
"""Shorter gaps are not listed beside findings: some profilers leave 1 ns between any
two events."""

TOLD_COMM = 0.05
"""From this share of the span on, the answer tells the exposed communication, which is
not idle but computes nothing."""
UNLIKE = 0.25
"""From this difference between the shares of idle time on, step and span tell different
stories."""
BETWEEN = "   "  # two parts of a line
NOTHING = "Neither trace has GPU events to compare; fusetui diff compares CPU ops too."
CUT_OFF = "waits-outside"
"""With a likely finding of this rule, work from before the window is missing."""

HOLES = "holes"  # with a finding of this rule, work of the window is missing

PATH = late(r"\A[^\s<>]*/(?=[^/]*\.py\(\d)")  # the folders of torch's name for a frame

Sums = Counter[str]


def answer(found: Why) -> str:
    """The first sentence: how long, how busy, and the main reason for being idle."""
    if not found.devices:
        threads = plural(len(found.cpu), "CPU thread")
        if found.ends_early:
            return f"The file ends before any GPU event: this is what {threads} did."
        name, events = found.accelerator
        if events and not name:
            ranges = plural(events, "range")
            return (
                f"No GPU events were recorded, only {ranges} of CUPTI's counters: this is what "
                f"{threads} did."
            )
        if events:
            return (
                f"The account is of GPUs, and the trace has {plural(events, 'event')} of {name} "
                f"instead: this is what {threads} did."
            )
        return f"No GPU events were recorded: this is what {threads} did."
    what, sums = headline(found)
    parts = (
        what,
        _busy(found, sums),
        _idle(sums, len(found.devices)),
        _other_story(found, sums),
    )
    return " ".join(part for part in parts if part)


def _other_story(found: Why, sums: Sums) -> str:
    """That the median step is not what the span is like, and where the difference
    lies."""
    whole = _unlike(found, sums)
    if not whole:
        return ""
    span, idle = whole["span"], whole["idle"]
    steps, gpus = found.steps, len(found.devices)
    text = f"{'Its span' if gpus == 1 else 'Their spans'} of {duration(span)} "
    text += "is" if gpus == 1 else "are"
    if sums["idle"] * span > idle * sums["span"]:
        return f"{text} {percent(span - idle, span)} busy, though."
    text += f" {percent(idle, span)} idle, though"
    longest = max(steps, key=lambda step: sum(one.idle_ns for one in step.devices))
    waits, lasts = (
        sum(one.idle_ns for one in longest.devices),
        sum(one.dur_ns for one in steps),
    )
    if 2 * waits > idle:
        return f"{text}: {printable(longest.name)} alone is idle for {duration(waits)}."
    if 2 * lasts * gpus < span:
        return f"{text}: the {count(len(steps))} steps take only {duration(lasts)}."
    return f"{text}."


def _unlike(found: Why, sums: Sums) -> Sums | None:
    """The account of the span, if the share of idle time in the median step is far from
    that."""
    whole = totals(found.devices)
    if (
        not steps_tell(found)
        or cut_off(found)
        or len(found.steps) < 2
        or not whole["span"]
    ):
        return None
    shares = [one["idle"] / one["span"] for one in (sums, whole)]
    return whole if abs(shares[0] - shares[1]) >= UNLIKE else None


def brief_answer(found: Why, with_reason: bool = True) -> str:
    """The same in fewer words, for a small screen, also without the reason for being
    idle."""
    if not found.devices:
        return answer(found)
    what, sums = headline(found)
    busy, idle = sums["span"] - sums["idle"], sums["idle"]
    works = "the GPU is" if len(found.devices) == 1 else "the GPUs are"
    longer = f" busy for at least {duration(busy)}"
    least = "at least " if unrecorded(found) else ""
    works += longer if cut_off(found) else f" {least}{percent(busy, sums['span'])} busy"
    ns, where = max((sums[name], reason.where) for name, reason in IDLE.items())
    most = "all" if ns == idle else duration(ns)
    rest = f", {duration(idle)} idle" if ns else ""
    rest += f", {most} of it {where}" if ns and with_reason else ""
    if whole := _unlike(found, sums):
        rest += f"; {percent(whole['idle'], whole['span'])} of the span is idle"
    return f"{what.removesuffix('.')}: {works}{rest}."


def headline(found: Why) -> tuple[str, Sums]:
    """What the figures of the answer are about, and their sums over all devices."""
    if steps_tell(found):
        step = median_step(found.steps)
        return f"{duration(step.dur_ns)} a step{_of(found)}.", totals(step.devices)
    sums = totals(found.devices)
    if found.about:
        return f"{found.about}: {duration(found.devices[0].span_ns)}.", sums
    spans = "GPU's span is" if len(found.devices) == 1 else "GPUs' spans add up to"
    return f"The {spans} {duration(sums['span'])}.", sums


def _of(found: Why) -> str:
    """Which of the steps the median step is, and what they are if no annotation is
    around them; of an even number, no mean of two is a step."""
    ran, steps = len(working(found.steps)), len(found.steps)
    by = found.steps_by or ""
    each = f", each {printable(by)}" if by.startswith(UP_TO) else ""
    if steps == 1:
        return ""
    if ran == 1:
        return f" (the only one of {count(steps)} in which a GPU ran{each})"
    which = "median" if ran % 2 else "lower median" if ran > 2 else "shorter"
    if ran == steps:
        return f" (the {which} of {count(steps)}{each})"
    return (
        f" (the {which} of the {count(ran)} of {count(steps)} in which a GPU ran{each})"
    )


def cut_off(found: Why) -> list[str]:
    """What is said of a span that probably begins with the end of work from before the
    window."""
    return [
        one.text for one in found.findings if one.rule == CUT_OFF and one.why_likely
    ]


def unrecorded(found: Why) -> list[str]:
    """What is said of work of the window that is not in the trace."""
    return [one.text for one in found.findings if one.rule == HOLES]


def qualified(found: Why) -> list[str]:
    """What is said of work that ran and is not in the trace, wherever."""
    return [*cut_off(found), *unrecorded(found)]


def _busy(found: Why, sums: Sums) -> str:
    busy, gpus = sums["span"] - sums["idle"], len(found.devices)
    who = "The GPU is busy" if gpus == 1 else f"The {count(gpus)} GPUs are busy"
    if cut_off(found):
        return f"{who} for {duration(busy)} of it, and longer with work from before the window."
    share = percent(busy, sums["span"])
    works = f"{who} {share} of {'the step' if steps_tell(found) else 'it'}"
    if unrecorded(found):
        works = (
            works.replace(share, f"at least {share}")
            + ", as some work was not recorded"
        )
    if sums["exposed_comm"] < TOLD_COMM * sums["span"]:
        return f"{works}."
    what = (
        "it communicates and computes" if gpus == 1 else "they communicate and compute"
    )
    return f"{works}; for {duration(sums['exposed_comm'])} of that {what} nothing."


def _idle(sums: Sums, gpus: int) -> str:
    ns, name = max((sums[name], name) for name in IDLE)
    if not ns:
        never = "It is never idle." if gpus == 1 else "They are never idle."
        return never if sums["span"] else ""
    most = "all" if ns == sums["idle"] else duration(ns)
    idle = duration(sums["idle"])
    who = f"{idle} is idle" if gpus == 1 else f"Together they are idle for {idle}"
    return f"{who}, {most} of it {IDLE[name].while_}."


def account_lines(found: Why, width: int, most: int = REASON_ROWS) -> list[str]:
    """Classes and at most so many reasons, of the median step and of the span."""
    columns = account_columns(found)

    def known(names: Iterable[str]) -> list[str]:
        return [name for name in names if any(sums[name] for _, sums in columns)]

    reasons = sorted(known(IDLE), key=lambda name: [-sums[name] for _, sums in columns])
    shown, rest = reasons[:most], reasons[most:]
    rows = [_row(CLASSES[name], [name], columns) for name in known(PARTS)]
    rows += [_row(f"  {IDLE[name].sentence}", [name], columns) for name in shown]
    if rest:
        rows.append(_row(f"  {plural(len(rest), 'other reason')}", rest, columns))
    rows += [_row(HIDDEN[name], [name], columns) for name in known(HIDDEN)]
    titles = [device_text(found)]
    for title, sums in columns:
        titles += [f"{title} {unit_of([sums['span']]).name}", "share"]
    # The labels are cut, so that no figure has to be.
    every = [titles, *rows]
    figures = sum(
        max(len(row[n]) for row in every) + len(GAP) for n in range(1, len(titles))
    )
    first, *lines = ([clip(row[0], max(1, width - figures)), *row[1:]] for row in every)
    headed = [Column(title, left=not n) for n, title in enumerate(first)]
    return table(headed, lines, width).split("\n")


def account_rows(found: Why) -> list[tuple[str, list[tuple[int, int]]]]:
    """Classes, reasons and what is hidden in words, the largest reason first; of each
    its time and the whole (ns) in every one of `account_columns`."""
    columns = account_columns(found)
    main = columns[0][1]
    names = {name: CLASSES[name] for name in PARTS}
    reasons = sorted(IDLE, key=lambda name: -main[name])
    names |= {name: f"idle, {IDLE[name].sentence}" for name in reasons} | HIDDEN
    return [
        (text, [(sums[name], sums["span"]) for _, sums in columns])
        for name, text in names.items()
        if any(sums[name] for _, sums in columns)
    ]


def account_line(found: Why, most: int) -> str:
    """The same in one line of so many cells: no class is left out to make room for a
    reason."""
    for names in (CLASSES, SHORT_CLASSES):
        classes = _classes(found, names)
        for parts in (_with_reasons(found, classes), classes):
            if cells(BETWEEN.join(parts[: len(classes)])) <= most:
                return joined(parts, most, BETWEEN)
    return joined([classes[0], classes[-1], *classes[1:-1]], most, BETWEEN)


def account_parts(found: Why) -> list[str]:
    """Each class with its share, then the main reasons of the idle time."""
    return _with_reasons(found, _classes(found, CLASSES))


def _classes(found: Why, names: Mapping[str, str]) -> list[str]:
    _, sums = headline(found)
    return [
        f"{names[name]} {duration(sums[name])}, {percent(sums[name], sums['span'])}"
        for name in PARTS
        if sums[name]
    ]


def _with_reasons(found: Why, classes: list[str]) -> list[str]:
    _, sums = headline(found)
    reasons = sorted(
        (name for name in IDLE if sums[name]), key=lambda name: -sums[name]
    )
    shown = [
        f"{IDLE[name].short} {duration(sums[name])}" for name in reasons[:REASON_ROWS]
    ]
    return (
        [*classes[:-1], f"{classes[-1]}: {shown[0]}", *shown[1:]] if shown else classes
    )


HIDDEN = {
    "hidden_comm": "beside compute: communication",
    "hidden_copy": "beside both: copies",
}


def device_text(found: Why) -> str:
    """The name of the one device, or how many there are."""
    if len(found.devices) != 1:
        return f"{count(len(found.devices))} GPUs together"
    one = found.devices[0]
    return printable(f"{device_label(one.device)} {one.name}".rstrip())


def account_columns(found: Why) -> list[tuple[str, Sums]]:
    """What the account is told of, and its sums: the median step, if steps tell, and
    the span."""
    if found.about:
        return [("time", totals(found.devices))]
    whole = ("span", totals(found.devices))
    if not steps_tell(found):
        return [whole]
    return [("step", totals(median_step(found.steps).devices)), whole]


def _row(
    text: str, names: Sequence[str], columns: Sequence[tuple[str, Sums]]
) -> list[str]:
    """The time of these classes or reasons together, in each column."""
    cells = [text]
    for _, sums in columns:
        ns, unit = sum(sums[name] for name in names), unit_of([sums["span"]])
        cells += [unit.text(ns), percent(ns, sums["span"])] if ns else ["", ""]
    return cells


def ceiling_text(found: Why) -> str:
    """What better kernels could save, for the kernels for which that is known; else
    ""."""
    known = found.ceiling
    if not known or not known.known_ns:
        return ""
    return (
        f"Better kernels of the same precision could save an estimated "
        f"{duration(known.at_stake_ns)} of the {duration(known.known_ns)} whose work is known "
        f"({percent(known.known_ns, known.known_ns + known.unknown_ns)} of the kernels' time), "
        f"and {duration(known.at_most_ns)} at most, by the rates of the data sheet."
    )


def not_recorded(found: Why) -> str:
    """What was not recorded, and the option that records it, and whether the device is
    unknown, in one line; else "".

    `Not recorded: input shapes (record_shapes=True), memory events
    (profile_memory=True).`
    """
    by = by_key(
        (one for one in found.cannot_tell if one.record_with),
        lambda one: one.record_with,
    )
    lacks = [
        f"{', '.join({one.missing: 0 for one in own})} ({how})"
        for how, own in by.items()
    ]
    between = "; " if any(", " in text for text in lacks) else ", "
    where = " in what was read" if found.ends_early else ""
    told = [f"Not recorded{where}: {between.join(lacks)}."] if lacks else []
    if Unknown("ceiling", LISTED_DEVICE, "") in found.cannot_tell:
        told.append("The table of peaks does not have this device.")
    return " ".join(told)


def covered_by(gap: Gap) -> str:
    """What covered most of it, the most informative first; else the event that it
    waited for."""
    layers = (PATH.sub("", gap.frame or ""), gap.op, gap.module, gap.annotation)
    return ", ".join(filter(None, layers)) or f"before {gap.next}"


def listed(found: Why) -> Sequence[Gap]:
    """The longest gaps that are worth a line."""
    return [gap for gap in found.gaps if gap.dur_ns >= LISTED_NS]


def named(name: str) -> str:
    """A class or a reason in words."""
    return CLASSES[name] if name in CLASSES else IDLE[name].sentence


TOLD = 3  # in a sentence
LONGEST_TOLD = 48
BUSY = 0.8  # from this share of the time asked about on, the GPU itself is the limit


def is_limit(found: Why) -> bool:
    """Whether the GPU is busy for most of what the answer is about."""
    _, sums = headline(found)
    return (
        bool(found.devices) and sums["span"] - sums["idle"] >= BUSY * sums["span"] > 0
    )


def breakdown_parts(found: Why) -> list[tuple[str, tuple[Share, ...], int]]:
    """By what the time is divided, its parts, and the time that their shares are of."""
    if (work := found.cpu_work) is not None:
        return [(what, shares, work.whole_ns) for what, shares in cpu_parts(work)]
    if (known := found.breakdown) is None:
        return []
    by_kernel = ("kernel", known.kernels, known.kernels_ns)
    by_module = ("module or annotation", known.modules, known.modules_ns)
    return [part for part in (by_kernel, by_module) if part[1]]


def breakdown_text(found: Why, width: int = 0) -> str:
    """`GPU time by kernel: gemm bf16 39 %, ...; by module or annotation: Qwen2MLP 31 %,
    ...`; "" where the GPU is not the limit. Names are cut, unless nobody sees that."""
    longest = width if isinstance(width, Unseen) else LONGEST_TOLD
    if found.cpu_work is not None:
        return cpu_text(found.cpu_work, longest)
    if found.breakdown is None or not found.breakdown.kernels or not is_limit(found):
        return ""
    told = []
    for what, some, whole in breakdown_parts(found):
        parts = (
            f"{cut(one.name, longest)} {percent(one.ns, whole)}" for one in some[:TOLD]
        )
        told.append(f"by {what}: {', '.join(parts)}")
    return f"GPU time {'; '.join(told)}."


def main_reason(gap: Gap) -> str:
    """The key of the reason with the most time."""
    return max(gap.idle, key=lambda name: gap.idle[name], default="queued")
