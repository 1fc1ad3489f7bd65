"""The answer to `why` in words, for both the command line and the app."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from fusetui.analysis.why.model import CLASSES as PARTS
from fusetui.analysis.why.model import (
    IDLE,
    LISTED_DEVICE,
    NEGLIGIBLE_SHARE,
    Gap,
    Unknown,
    Why,
    median_step,
    steps_tell,
    steps_with_work,
    totals,
)
from fusetui.report.cpu_words import BreakdownPiece, breakdown_sentence, cpu_parts
from fusetui.text.cutting import clip, joined
from fusetui.text.cutting import width as cells_of
from fusetui.text.figures import count, duration, percent, plural, unit_of
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.text.tables import (
    GAP,
    Column,
    UncutWidth,
    cut_line,
    omitted_line,
    record_table,
    table,
    time_or_blank,
)
from fusetui.trace.layout.steps import UP_TO, StepLength
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
"""Reasons of idle time that are listed, unless a caller says otherwise."""

NEGLIGIBLE_HEADING = (
    f"negligible findings, each below {percent(NEGLIGIBLE_SHARE, 1)} of the time"
)
LISTED_NS = 1_000
"""Shorter gaps are not listed beside findings: some profilers leave 1 ns between any
two events."""

MIN_COMM_SHARE = 0.05
"""From this share of the span on, the answer names the exposed communication, which is
not idle but computes nothing."""

UNLIKE_SHARE = 0.25
"""From this difference between the shares of idle time on, step and span are reported
apart."""

BETWEEN = "   "  # two parts of a line
NOTHING = (
    "Neither trace has GPU events to compare. To compare CPU ops, use fusetui diff."
)
CUT_OFF = "waits-outside"
"""With a likely finding of this rule, work from before the window is missing."""

HOLES = "holes"  # with a finding of this rule, work of the window is missing

PATH = lazy_pattern(
    r"\A[^\s<>]*/(?=[^/]*\.py\(\d)"
)  # the folders of torch's name for a frame

Sums = Counter[str]
"""Times of devices together (ns) by class, reason of idle time and what is hidden: see
totals."""


def answer(why: Why) -> str:
    """The first sentence: how long, how busy, and the main reason for being idle."""
    if not why.devices:
        return _without_devices(why)
    head = headline(why)
    sentences = (
        head.text,
        _busy(why, head.sums),
        _idle(head.sums, len(why.devices)),
        _other_story(why, head.sums),
    )
    return " ".join(sentence for sentence in sentences if sentence)


def _without_devices(why: Why) -> str:
    threads = plural(len(why.cpu), "CPU thread")
    name, events = why._accelerator
    if why._ends_early:
        reason = "The file ends before the first GPU event"
    elif events and not name:
        ranges = plural(events, "CUPTI counter range")
        reason = f"No GPU events were recorded, only {ranges}"
    elif events:
        of_accelerator = f"the {plural(events, f'{name} event')}"
        are = "is" if events == 1 else "are"
        listed_by_name = f"{of_accelerator} {are} listed by name"
        reason = f"No GPU events were recorded ({listed_by_name})"
    else:
        reason = "No GPU events were recorded"
    return f"{reason}. The breakdown covers {threads}."


def _other_story(why: Why, sums: Sums) -> str:
    """That the median step is not what the span is like, and where the difference
    lies."""
    whole = _unlike(why, sums)
    if whole is None:
        return ""
    span_ns = whole["span"]
    idle_ns = whole["idle"]
    devices = len(why.devices)
    spans = "Its whole span" if devices == 1 else "Their whole spans"
    verb = "is" if devices == 1 else "are"
    text = f"{spans} of {duration(span_ns)} {verb}"
    if sums["idle"] * span_ns > idle_ns * sums["span"]:
        return f"{text} {percent(span_ns - idle_ns, span_ns)} busy."
    text += f" {percent(idle_ns, span_ns)} idle"
    idle_of_steps = [
        sum(device.idle_ns for device in step.devices) for step in why.steps
    ]
    longest_idle_ns = max(idle_of_steps)
    if 2 * longest_idle_ns > idle_ns:
        step = why.steps[idle_of_steps.index(longest_idle_ns)]
        idle = duration(longest_idle_ns)
        return f"{text}: {printable(step.name)} alone is idle for {idle}."
    steps_ns = sum(step.dur_ns for step in why.steps)
    if 2 * steps_ns * devices < span_ns:
        steps = count(len(why.steps))
        return f"{text}: the {steps} steps take only {duration(steps_ns)}."
    return f"{text}."


def _unlike(why: Why, sums: Sums) -> Sums | None:
    """The account of the span, if the share of idle time in the median step is far from
    that."""
    whole = totals(why.devices)
    has_steps = steps_tell(why) and len(why.steps) >= 2
    if not has_steps or cut_off(why) or not whole["span"]:
        return None
    difference = abs(_idle_share(sums) - _idle_share(whole))
    return whole if difference >= UNLIKE_SHARE else None


def _idle_share(sums: Sums) -> float:
    return sums["idle"] / sums["span"]


def brief_answer(why: Why, with_reason: bool = True) -> str:
    """The same in fewer words, for a small screen, also without the reason for being
    idle."""
    if not why.devices:
        return answer(why)
    head = headline(why)
    sums = head.sums
    busy_ns = sums["span"] - sums["idle"]
    gpus = "the GPU is" if len(why.devices) == 1 else "the GPUs are"
    if cut_off(why):
        text = f"{gpus} busy for at least {duration(busy_ns)}"
    else:
        least = "at least " if unrecorded(why) else ""
        text = f"{gpus} {least}{percent(busy_ns, sums['span'])} busy"
    reason = _largest_reason(sums)
    if sums[reason]:
        text += f", {duration(sums['idle'])} idle"
        if with_reason:
            text += f", {_part_of_idle(sums, reason)} {IDLE[reason].where}"
    whole = _unlike(why, sums)
    if whole is not None:
        text += f"; {percent(whole['idle'], whole['span'])} of the span is idle"
    return f"{head.text.removesuffix('.')}: {text}."


class Headline(NamedTuple):
    """What the figures of the answer are about, and their sums over all devices."""

    text: str
    sums: Sums


def headline(why: Why) -> Headline:
    """Of the median step if steps tell, else of the span."""
    if steps_tell(why):
        step = median_step(why.steps)
        text = (
            f"{duration(step.dur_ns)} per step ({StepLength.WALL}{_which_step(why)})."
        )
        return Headline(text=text, sums=totals(step.devices))
    sums = totals(why.devices)
    if why.about:
        text = f"{why.about}: {duration(why.devices[0].span_ns)}."
    elif len(why.devices) == 1:
        text = f"The GPU's span is {duration(sums['span'])}."
    else:
        text = f"The GPUs' spans add up to {duration(sums['span'])}."
    return Headline(text=text, sums=sums)


def _which_step(why: Why) -> str:
    """Which of the steps the median step is, and what they are if no annotation is
    around them; of an even number, no mean of two is a step."""
    steps = len(why.steps)
    ran = len(steps_with_work(why.steps))
    if steps == 1:
        return ""
    by = why.steps_by or ""
    each = f", each {printable(by)}" if by.startswith(UP_TO) else ""
    if ran == 1:
        return f"; the only one of {count(steps)} in which a GPU ran{each}"
    if ran % 2:
        which = "median"
    elif ran > 2:
        which = "lower median"
    else:
        which = "shorter"
    if ran == steps:
        return f"; the {which} of {count(steps)}{each}"
    return (
        f"; the {which} of the {count(ran)} of {count(steps)} in which a GPU ran{each}"
    )


def cut_off(why: Why) -> list[str]:
    """What is said of a span that probably begins with the end of work from before the
    window."""
    return [
        finding.text
        for finding in why.findings
        if finding.rule == CUT_OFF and finding.why_likely
    ]


def unrecorded(why: Why) -> list[str]:
    """What is said of work of the window that is not in the trace."""
    return [finding.text for finding in why.findings if finding.rule == HOLES]


def qualified(why: Why) -> list[str]:
    """What is said of work that ran and is not in the trace, wherever."""
    return [*cut_off(why), *unrecorded(why)]


def _busy(why: Why, sums: Sums) -> str:
    busy_ns = sums["span"] - sums["idle"]
    is_one = len(why.devices) == 1
    gpus = "The GPU is" if is_one else f"The {count(len(why.devices))} GPUs are"
    if cut_off(why):
        return (
            f"{gpus} busy for at least {duration(busy_ns)} of {_whole(why)}: work "
            "launched before the window also ran."
        )
    share = percent(busy_ns, sums["span"])
    whole = _whole(why)
    if unrecorded(why):
        text = (
            f"{gpus} busy for at least {share} of {whole}, because some work was not "
            "recorded"
        )
    else:
        text = f"{gpus} busy for {share} of {whole}"
    if sums["exposed_comm"] < MIN_COMM_SHARE * sums["span"]:
        return f"{text}."
    only_comm = duration(sums["exposed_comm"])
    return f"{text}; for {only_comm} of that, nothing but communication runs."


def _whole(why: Why) -> str:
    """The time of which a share is given, as the headline names it."""
    if steps_tell(why):
        return "the step"
    if why.about:
        return "that time"
    return "the span" if len(why.devices) == 1 else "the spans"


def _idle(sums: Sums, devices: int) -> str:
    reason = _largest_reason(sums)
    if not sums[reason]:
        never = "It is never idle." if devices == 1 else "They are never idle."
        return never if sums["span"] else ""
    idle = duration(sums["idle"])
    whose = "Idle" if devices == 1 else "Total idle time:"
    return f"{whose} {idle}, {_part_of_idle(sums, reason)} {IDLE[reason].while_}."


def _largest_reason(sums: Sums) -> str:
    """The key of the reason of idle time with the most time, which may be 0."""
    return max(IDLE, key=lambda name: (sums[name], name))


def _part_of_idle(sums: Sums, reason: str) -> str:
    """`all of it`, or `of which 23.4 us`: how much of the idle time has this reason."""
    if sums[reason] == sums["idle"]:
        return "all of it"
    return f"of which {duration(sums[reason])}"


HIDDEN = {
    "hidden_comm": "communication hidden behind compute",
    "hidden_copy": "copies hidden behind compute or communication",
}


class AccountColumn(NamedTuple):
    """What an account is of: the median step, the span, or what was asked about."""

    title: str
    sums: Sums


class AccountRow(NamedTuple):
    """One class, reason or what is hidden, in words; `shares` are those of the
    columns."""

    text: str
    shares: tuple[TimeShare, ...]


class TimeShare(NamedTuple):
    """A part of a time; both in ns."""

    ns: int
    whole_ns: int


def account_columns(why: Why) -> list[AccountColumn]:
    """The median step, if steps tell, and the span; or only what was asked about."""
    of_devices = totals(why.devices)
    if why.about:
        return [AccountColumn(title="time", sums=of_devices)]
    span = AccountColumn(title="span", sums=of_devices)
    if not steps_tell(why):
        return [span]
    of_step = totals(median_step(why.steps).devices)
    return [AccountColumn(title="step", sums=of_step), span]


def account_lines(why: Why, width: int, most: int = REASON_ROWS) -> list[str]:
    """Classes and at most so many reasons, of the median step and of the span."""
    columns = account_columns(why)
    titles = [device_text(why)]
    for column in columns:
        unit = unit_of([column.sums["span"]])
        titles += [f"{column.title} {unit.name}", "share"]
    rows = list(_account_cells(columns, most))
    # The labels are cut, so that no figure has to be.
    _, *figures = zip(titles, *rows, strict=True)
    figures_width = sum(max(map(len, cells)) + len(GAP) for cells in figures)
    label_width = max(1, width - figures_width)
    for cells in (titles, *rows):
        cells[0] = clip(cells[0], label_width)
    title_of_labels, *titles_of_figures = titles
    table_columns = [Column(title_of_labels, left=True)]
    table_columns += [Column(title) for title in titles_of_figures]
    return table(table_columns, rows, width).split("\n")


THREAD_COLUMNS = (
    Column("ops", cell=lambda thread: time_or_blank(thread.op_ns)),
    Column("Python", cell=lambda thread: time_or_blank(thread.python_ns)),
    Column("waiting", cell=lambda thread: time_or_blank(thread.wait_ns)),
    Column("nothing", cell=lambda thread: time_or_blank(thread.nothing_ns)),
    Column("of", cell=lambda thread: duration(thread.span_ns)),
    Column("thread", left=True, cell=lambda thread: printable(thread.label)),
)


def thread_lines(why: Why, width: int, most: int, hint: str = "") -> list[str]:
    """What CPU threads did, the busiest first: at most so many of them, and a line that
    says how many more there are, with a hint. Nothing without any."""
    if not why.cpu:
        return []
    busiest_first = sorted(
        why.cpu, key=lambda thread: -(thread.op_ns + thread.python_ns)
    )
    lines = record_table(THREAD_COLUMNS, busiest_first[:most], width).split("\n")
    return [*lines, *omitted_line(len(busiest_first) - most, "thread", hint)]


def _account_cells(columns: Sequence[AccountColumn], most: int) -> Iterator[list[str]]:
    """The cells of each row, with at most so many reasons: those without time are left
    out."""
    for name in _with_time(PARTS, columns):
        yield _cells(CLASSES[name], [name], columns)
    reasons = _with_time(IDLE, columns)
    reasons.sort(key=lambda name: [-column.sums[name] for column in columns])
    for name in reasons[:most]:
        yield _cells(f"  {IDLE[name].sentence}", [name], columns)
    others = reasons[most:]
    if others:
        yield _cells(f"  {plural(len(others), 'other reason')}", others, columns)
    for name in _with_time(HIDDEN, columns):
        yield _cells(HIDDEN[name], [name], columns)


def _with_time(names: Iterable[str], columns: Sequence[AccountColumn]) -> list[str]:
    """Those that take time in any column."""
    return [name for name in names if any(column.sums[name] for column in columns)]


def _cells(
    text: str, names: Sequence[str], columns: Sequence[AccountColumn]
) -> list[str]:
    """The time of these classes or reasons together, in each column."""
    cells = [text]
    for column in columns:
        ns = sum(column.sums[name] for name in names)
        if ns:
            span_ns = column.sums["span"]
            cells += [unit_of([span_ns]).text(ns), percent(ns, span_ns)]
        else:
            cells += ["", ""]
    return cells


def account_rows(why: Why) -> list[AccountRow]:
    """Classes, reasons and what is hidden, the largest reason first."""
    columns = account_columns(why)
    main, *_ = columns
    texts = {name: CLASSES[name] for name in PARTS}
    for name in sorted(IDLE, key=lambda name: -main.sums[name]):
        texts[name] = f"idle, {IDLE[name].sentence}"
    texts |= HIDDEN
    rows = []
    for name in _with_time(texts, columns):
        shares = [
            TimeShare(ns=column.sums[name], whole_ns=column.sums["span"])
            for column in columns
        ]
        rows.append(AccountRow(text=texts[name], shares=tuple(shares)))
    return rows


def account_line(why: Why, most: int) -> str:
    """The same in one line of so many cells: no class is left out to make room for a
    reason."""
    sums = headline(why).sums
    for names in (CLASSES, SHORT_CLASSES):
        classes = _classes(sums, names)
        for parts in (_with_reasons(sums, classes), classes):
            if cells_of(BETWEEN.join(parts[: len(classes)])) <= most:
                return joined(parts, most, BETWEEN)
    *before, idle = classes
    return joined([*before[:1], idle, *before[1:]], most, BETWEEN)


def account_parts(why: Why) -> list[str]:
    """Each class with its share, then the main reasons of the idle time."""
    sums = headline(why).sums
    return _with_reasons(sums, _classes(sums, CLASSES))


def _classes(sums: Sums, names: Mapping[str, str]) -> list[str]:
    return [
        f"{names[name]} {duration(sums[name])}, {percent(sums[name], sums['span'])}"
        for name in PARTS
        if sums[name]
    ]


def _with_reasons(sums: Sums, classes: list[str]) -> list[str]:
    """With the main reasons after the idle time, the last of the classes."""
    names = sorted((name for name in IDLE if sums[name]), key=lambda name: -sums[name])
    if not names:
        return classes
    main, *others = [
        f"{IDLE[name].short} {duration(sums[name])}" for name in names[:REASON_ROWS]
    ]
    *before, idle = classes
    return [*before, f"{idle}: {main}", *others]


def device_text(why: Why) -> str:
    """The name of the one device, or how many there are."""
    if len(why.devices) != 1:
        return f"{count(len(why.devices))} GPUs together"
    (device,) = why.devices
    return printable(f"{device_label(device.device)} {device.name}".rstrip())


def ceiling_text(why: Why) -> str:
    """What better kernels could save, for the kernels for which that is known; else
    ""."""
    ceiling = why.ceiling
    if not ceiling or not ceiling.known_ns:
        return ""
    kernels_ns = ceiling.known_ns + ceiling.unknown_ns
    savings = f"at most {duration(ceiling.at_most_ns)}"
    if ceiling.at_stake_ns:
        savings = f"an estimated {duration(ceiling.at_stake_ns)}, {savings}"
    return (
        f"Better kernels of the same precision could save {savings} at the data-sheet "
        f"rates. This covers the {duration(ceiling.known_ns)} of kernels "
        f"({percent(ceiling.known_ns, kernels_ns)}) whose work is known."
    )


def not_recorded(why: Why) -> str:
    """What was not recorded, and the option that records it, and whether the device is
    unknown, in one line; else "".

    `Not recorded: input shapes (record_shapes=True), memory events
    (profile_memory=True).`
    """
    sentences = []
    lacks = _lacks(why.cannot_tell)
    if lacks:
        between = "; " if any(", " in lack for lack in lacks) else ", "
        where = " in the part that was read" if why._ends_early else ""
        sentences.append(f"Not recorded{where}: {between.join(lacks)}.")
    if Unknown("ceiling", LISTED_DEVICE, "") in why.cannot_tell:
        sentences.append("The peak rates of this device are unknown.")
    return " ".join(sentences)


def _lacks(unknown: Iterable[Unknown]) -> list[str]:
    """What is missing, each once, by the option that records it."""
    can_be_recorded = [lack for lack in unknown if lack.record_with]
    by_option = by_key(can_be_recorded, key=lambda lack: lack.record_with)
    lacks = []
    for option, of_option in by_option.items():
        missing = dict.fromkeys(lack.missing for lack in of_option)
        lacks.append(f"{', '.join(missing)} ({option})")
    return lacks


def covered_by(gap: Gap) -> str:
    """What covered most of it, the most informative first; else the event that it
    waited for."""
    layers = (PATH.sub("", gap.frame or ""), gap.op, gap.module, gap.annotation)
    return ", ".join(filter(None, layers)) or f"before {gap.next}"


def listed(why: Why) -> Sequence[Gap]:
    """The longest gaps that are worth a line."""
    return [gap for gap in why.gaps if gap.dur_ns >= LISTED_NS]


def named(name: str) -> str:
    """A class or a reason in words."""
    return CLASSES[name] if name in CLASSES else IDLE[name].sentence


GPU_TIME = "GPU time"
MAX_NAMES = 3  # of a breakdown in a sentence
MAX_NAME_CELLS = 48
BUSY_SHARE = 0.8
"""From this share of the time asked about on, the GPU itself is the limit."""


def is_limit(why: Why) -> bool:
    """Whether the GPU is busy for most of what the answer is about."""
    if not why.devices:
        return False
    sums = headline(why).sums
    busy_ns = sums["span"] - sums["idle"]
    return busy_ns >= BUSY_SHARE * sums["span"] > 0


def breakdown_parts(why: Why) -> list[BreakdownPiece]:
    """Those that are not empty: of GPU time; or of the time of another accelerator, and
    of CPU time, if no GPU event was recorded."""
    if why.cpu_work is not None:
        return [*accelerator_parts(why), *cpu_parts(why.cpu_work)]
    if why._breakdown is None:
        return accelerator_parts(why)
    parts = (
        BreakdownPiece(
            time=GPU_TIME,
            by="kernel",
            shares=why._breakdown.kernels,
            whole_ns=why._breakdown.kernels_ns,
        ),
        BreakdownPiece(
            time=GPU_TIME,
            by="module or annotation",
            shares=why._breakdown.modules,
            whole_ns=why._breakdown.modules_ns,
        ),
    )
    return [part for part in parts if part.shares]


def accelerator_parts(why: Why) -> list[BreakdownPiece]:
    """The time of the events of an accelerator that is no GPU, by name; nothing where
    there is none."""
    work = why._accelerator_work
    if work is None or not work.events:
        return []
    name, _ = why._accelerator
    time = f"{printable(name)} time"
    return [
        BreakdownPiece(
            time=time, by="event", shares=work.events, whole_ns=work.whole_ns
        )
    ]


def breakdown_text(why: Why, width: int = 0) -> str:
    """`GPU time by kernel: gemm bf16 39 %, ...; by module or annotation: Qwen2MLP 31 %,
    ...`; "" where the GPU is not the limit. Names are cut, unless nobody sees that."""
    name_cells = width if isinstance(width, UncutWidth) else MAX_NAME_CELLS
    if why.cpu_work is not None:
        sentences = [
            breakdown_sentence(parts, name_cells)
            for parts in (accelerator_parts(why), cpu_parts(why.cpu_work))
            if parts
        ]
        return " ".join(filter(None, sentences))
    if why._breakdown is None or not why._breakdown.kernels or not is_limit(why):
        return ""
    texts = []
    for part in breakdown_parts(why):
        shares = [
            f"{cut_line(share.name, name_cells)} {percent(share.ns, part.whole_ns)}"
            for share in part.shares[:MAX_NAMES]
        ]
        texts.append(f"by {part.by}: {', '.join(shares)}")
    return f"{GPU_TIME} {'; '.join(texts)}."


def main_reason(gap: Gap) -> str:
    """The key of the reason with the most time."""
    return max(gap.idle, key=lambda name: gap.idle[name], default="queued")
