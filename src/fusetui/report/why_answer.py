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
    add_up_accounts,
    do_steps_hold_work,
    find_median_step,
    select_working_steps,
)
from fusetui.report.cpu_words import BreakdownPiece, describe_breakdown, divide_cpu_time
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
    """Return the first sentences of the answer: how long the step or span is, how busy
    the GPUs are, and the main reason for being idle."""
    if not why.devices:
        return _answer_without_devices(why)
    head = make_headline(why)
    sentences = (
        head.text,
        _describe_busy(why, head.sums),
        _describe_idle(head.sums, len(why.devices)),
        _describe_unlike_span(why, head.sums),
    )
    return " ".join(sentence for sentence in sentences if sentence)


def _answer_without_devices(why: Why) -> str:
    """Return sentences about why a trace has no GPU events, and what the breakdown
    covers instead."""
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


def _describe_unlike_span(why: Why, sums: Sums) -> str:
    """Return a sentence about the whole span if its share of idle time is far from that
    of the median step, else "". It also says where the difference lies."""
    whole = _find_unlike_span(why, sums)
    if whole is None:
        return ""
    span_ns = whole["span"]
    idle_ns = whole["idle"]
    devices = len(why.devices)
    spans = "Its whole span" if devices == 1 else "Their whole spans"
    verb = "is" if devices == 1 else "are"
    span_sentence = f"{spans} of {duration(span_ns)} {verb}"
    if sums["idle"] * span_ns > idle_ns * sums["span"]:
        return f"{span_sentence} {percent(span_ns - idle_ns, span_ns)} busy."
    span_sentence += f" {percent(idle_ns, span_ns)} idle"
    idle_of_steps = [
        sum(device.idle_ns for device in step.devices) for step in why.steps
    ]
    longest_idle_ns = max(idle_of_steps)
    if 2 * longest_idle_ns > idle_ns:
        step = why.steps[idle_of_steps.index(longest_idle_ns)]
        idle = duration(longest_idle_ns)
        return f"{span_sentence}: {printable(step.name)} alone is idle for {idle}."
    steps_ns = sum(step.dur_ns for step in why.steps)
    if 2 * steps_ns * devices < span_ns:
        steps = count(len(why.steps))
        return f"{span_sentence}: the {steps} steps take only {duration(steps_ns)}."
    return f"{span_sentence}."


def _find_unlike_span(why: Why, sums: Sums) -> Sums | None:
    """Return the times of the whole span if its share of idle time is far from that of
    the median step; else None."""
    whole = add_up_accounts(why.devices)
    has_steps = do_steps_hold_work(why) and len(why.steps) >= 2
    if not has_steps or find_cut_off(why) or not whole["span"]:
        return None
    difference = abs(_compute_idle_share(sums) - _compute_idle_share(whole))
    return whole if difference >= UNLIKE_SHARE else None


def _compute_idle_share(sums: Sums) -> float:
    return sums["idle"] / sums["span"]


def format_brief_answer(why: Why, with_reason: bool = True) -> str:
    """Return the answer in fewer words, for a small screen. The main reason for idle
    time is left out unless `with_reason`."""
    if not why.devices:
        return answer(why)
    head = make_headline(why)
    sums = head.sums
    busy_ns = sums["span"] - sums["idle"]
    gpus = "the GPU is" if len(why.devices) == 1 else "the GPUs are"
    if find_cut_off(why):
        text = f"{gpus} busy for at least {duration(busy_ns)}"
    else:
        least = "at least " if unrecorded(why) else ""
        text = f"{gpus} {least}{percent(busy_ns, sums['span'])} busy"
    reason = _largest_reason(sums)
    if sums[reason]:
        text += f", {duration(sums['idle'])} idle"
        if with_reason:
            text += f", {_describe_part_of_idle(sums, reason)} {IDLE[reason].where}"
    whole = _find_unlike_span(why, sums)
    if whole is not None:
        text += f"; {percent(whole['idle'], whole['span'])} of the span is idle"
    return f"{head.text.removesuffix('.')}: {text}."


class Headline(NamedTuple):
    """What the figures of the answer are about, and their sums over all devices."""

    text: str
    sums: Sums


def make_headline(why: Why) -> Headline:
    """Return what the figures of the answer are about, and their sums over all devices.
    It is the median step if there are steps, else the span."""
    if do_steps_hold_work(why):
        step = find_median_step(why.steps)
        text = f"A step takes {duration(step.dur_ns)} ({StepLength.WALL}{_describe_median_step(why)})."
        return Headline(text=text, sums=add_up_accounts(step.devices))
    sums = add_up_accounts(why.devices)
    if why.about:
        text = f"{why.about}: {duration(why.devices[0].span_ns)}."
    elif len(why.devices) == 1:
        text = f"The GPU's span is {duration(sums['span'])}."
    else:
        text = f"The GPUs' spans add up to {duration(sums['span'])}."
    return Headline(text=text, sums=sums)


def _describe_median_step(why: Why) -> str:
    """Return which of the steps the median one is, to follow the word "step". For an
    even number it is the lower of the two in the middle, as no mean of two is a step.
    """
    steps = len(why.steps)
    ran = len(select_working_steps(why.steps))
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
        return f"; {which} of {count(steps)}{each}"
    return f"; {which} of the {count(ran)} of {count(steps)} in which a GPU ran{each}"


def find_cut_off(why: Why) -> list[str]:
    """Return the sentences about a span that probably begins with the end of work from
    before the window. Empty if there is no such work."""
    return [
        finding.text
        for finding in why.findings
        if finding.rule == CUT_OFF and finding.why_likely
    ]


def unrecorded(why: Why) -> list[str]:
    """Return the sentences about work inside the window that is missing from the trace."""
    return [finding.text for finding in why.findings if finding.rule == HOLES]


def find_missing_work(why: Why) -> list[str]:
    """Return the sentences about all work that ran and is missing from the trace."""
    return [*find_cut_off(why), *unrecorded(why)]


def _describe_busy(why: Why, sums: Sums) -> str:
    """Return a sentence about how busy the GPUs are, and about exposed communication if
    it is considerable. The figure is a lower bound if work is missing."""
    busy_ns = sums["span"] - sums["idle"]
    is_one = len(why.devices) == 1
    gpus = "The GPU is" if is_one else f"The {count(len(why.devices))} GPUs are"
    if find_cut_off(why):
        return (
            f"{gpus} busy for at least {duration(busy_ns)} of {_name_whole(why)}: work "
            "launched before the window also ran."
        )
    share = percent(busy_ns, sums["span"])
    whole = _name_whole(why)
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
    return f"{text}; for {only_comm} of that, only communication runs."


def _name_whole(why: Why) -> str:
    """Return the time of which a share is given, as the headline names it: the step,
    the time, or the span."""
    if do_steps_hold_work(why):
        return "the step"
    if why.about:
        return "that time"
    return "the span" if len(why.devices) == 1 else "the spans"


def _describe_idle(sums: Sums, devices: int) -> str:
    """Return a sentence about the idle time of the devices and its largest reason. ""
    if there is no time at all."""
    reason = _largest_reason(sums)
    if not sums[reason]:
        never = "The GPU is never idle." if devices == 1 else "The GPUs are never idle."
        return never if sums["span"] else ""
    idle = duration(sums["idle"])
    whose = "Idle" if devices == 1 else "Total idle time:"
    return (
        f"{whose} {idle}, {_describe_part_of_idle(sums, reason)} {IDLE[reason].while_}."
    )


def _largest_reason(sums: Sums) -> str:
    """The key of the reason of idle time with the most time, which may be 0."""
    return max(IDLE, key=lambda name: (sums[name], name))


def _describe_part_of_idle(sums: Sums, reason: str) -> str:
    """Return how much of the idle time has this reason: `all of it`, or `of which 23.4
    us`."""
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


def make_account_columns(why: Why) -> list[AccountColumn]:
    """Return the columns of the account of time: the median step if there are steps,
    and the span. If a part was asked about, it is the only column."""
    of_devices = add_up_accounts(why.devices)
    if why.about:
        return [AccountColumn(title="time", sums=of_devices)]
    span = AccountColumn(title="span", sums=of_devices)
    if not do_steps_hold_work(why):
        return [span]
    of_step = add_up_accounts(find_median_step(why.steps).devices)
    return [AccountColumn(title="step", sums=of_step), span]


def account_lines(why: Why, width: int, most: int = REASON_ROWS) -> list[str]:
    """Return lines of a table of where the time went, by class and by reason of idle
    time. At most `most` reasons are listed, and `width` is in cells."""
    columns = make_account_columns(why)
    titles = [name_devices(why)]
    for column in columns:
        unit = unit_of([column.sums["span"]])
        titles += [f"{column.title} {unit.name}", "share"]
    rows = list(_make_account_cells(columns, most))
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


def format_threads(why: Why, width: int, most: int, hint: str = "") -> list[str]:
    """Return lines of a table of what CPU threads did, the busiest first, at most
    `most` of them. A last line says how many more there are, with a hint. Empty without
    threads."""
    if not why.cpu:
        return []
    busiest_first = sorted(
        why.cpu, key=lambda thread: -(thread.op_ns + thread.python_ns)
    )
    lines = record_table(THREAD_COLUMNS, busiest_first[:most], width).split("\n")
    return [*lines, *omitted_line(len(busiest_first) - most, "thread", hint)]


def _make_account_cells(
    columns: Sequence[AccountColumn], most: int
) -> Iterator[list[str]]:
    """Yield the cells of each row of the account; rows without time are left out. At
    most `most` reasons of idle time have a row, and the others share one."""
    for name in _select_with_time(PARTS, columns):
        yield _make_cells(CLASSES[name], [name], columns)
    reasons = _select_with_time(IDLE, columns)
    reasons.sort(key=lambda name: [-column.sums[name] for column in columns])
    for name in reasons[:most]:
        yield _make_cells(f"  {IDLE[name].sentence}", [name], columns)
    others = reasons[most:]
    if others:
        yield _make_cells(f"  {plural(len(others), 'other reason')}", others, columns)
    for name in _select_with_time(HIDDEN, columns):
        yield _make_cells(HIDDEN[name], [name], columns)


def _select_with_time(
    names: Iterable[str], columns: Sequence[AccountColumn]
) -> list[str]:
    """Return those of the classes or reasons that take time in any column."""
    return [name for name in names if any(column.sums[name] for column in columns)]


def _make_cells(
    text: str, names: Sequence[str], columns: Sequence[AccountColumn]
) -> list[str]:
    """Return the cells of a row: its text, then for each column the time of these
    classes or reasons together, and its share."""
    cells = [text]
    for column in columns:
        ns = sum(column.sums[name] for name in names)
        if ns:
            span_ns = column.sums["span"]
            cells += [unit_of([span_ns]).text(ns), percent(ns, span_ns)]
        else:
            cells += ["", ""]
    return cells


def make_account_rows(why: Why) -> list[AccountRow]:
    """Return the rows of the account with their exact times: classes, reasons with the
    largest first, and what is hidden behind other work. Rows without time are left out.
    """
    columns = make_account_columns(why)
    main, *_ = columns
    texts = {name: CLASSES[name] for name in PARTS}
    for name in sorted(IDLE, key=lambda name: -main.sums[name]):
        texts[name] = f"idle, {IDLE[name].sentence}"
    texts |= HIDDEN
    rows = []
    for name in _select_with_time(texts, columns):
        shares = [
            TimeShare(ns=column.sums[name], whole_ns=column.sums["span"])
            for column in columns
        ]
        rows.append(AccountRow(text=texts[name], shares=tuple(shares)))
    return rows


def format_account_line(why: Why, most: int) -> str:
    """Return the account in one line of at most `most` cells. Reasons of idle time are
    dropped before any class is."""
    sums = make_headline(why).sums
    for names in (CLASSES, SHORT_CLASSES):
        classes = _format_classes(sums, names)
        for parts in (_append_reasons(sums, classes), classes):
            if cells_of(BETWEEN.join(parts[: len(classes)])) <= most:
                return joined(parts, most, BETWEEN)
    *earlier_classes, idle = classes
    return joined([*earlier_classes[:1], idle, *earlier_classes[1:]], most, BETWEEN)


def make_account_parts(why: Why) -> list[str]:
    """Return each class of time with its share, then the main reasons of idle time."""
    sums = make_headline(why).sums
    return _append_reasons(sums, _format_classes(sums, CLASSES))


def _format_classes(sums: Sums, names: Mapping[str, str]) -> list[str]:
    """Return each class of time that is not 0 with its share of the span, such as
    `compute 4.3 ms, 19 %`. `names` has the word for each class."""
    return [
        f"{names[name]} {duration(sums[name])}, {percent(sums[name], sums['span'])}"
        for name in PARTS
        if sums[name]
    ]


def _append_reasons(sums: Sums, classes: list[str]) -> list[str]:
    """Return the classes with the main reasons of idle time appended to the last class,
    which is idle time."""
    names = sorted((name for name in IDLE if sums[name]), key=lambda name: -sums[name])
    if not names:
        return classes
    main, *others = [
        f"{IDLE[name].short} {duration(sums[name])}" for name in names[:REASON_ROWS]
    ]
    *before, idle = classes
    return [*before, f"{idle}: {main}", *others]


def name_devices(why: Why) -> str:
    """Return the name of the device if there is one, or else how many there are
    together."""
    if len(why.devices) != 1:
        return f"{count(len(why.devices))} GPUs together"
    (device,) = why.devices
    return printable(f"{device_label(device.device)} {device.name}".rstrip())


def describe_ceiling(why: Why) -> str:
    """Return sentences about what better kernels could save, as far as the work of
    kernels is known; "" if no work is known."""
    ceiling = why.ceiling
    if not ceiling or not ceiling.known_ns:
        return ""
    kernels_ns = ceiling.known_ns + ceiling.unknown_ns
    savings = f"at most {duration(ceiling.at_most_ns)}"
    if ceiling.at_stake_ns:
        savings = f"an estimated {duration(ceiling.at_stake_ns)}, and {savings}"
    return (
        "If kernels reached the data-sheet rates at the same precision, this would "
        f"save {savings}. "
        f"Only kernels whose work is known are included: "
        f"{percent(ceiling.known_ns, kernels_ns)} of kernel time "
        f"({duration(ceiling.known_ns)})."
    )


def describe_not_recorded(why: Why) -> str:
    """Return a line about what was not recorded, with the option that records it, and
    whether the device is unknown. "" if nothing is missing.

        Not recorded: input shapes (set record_shapes=True); memory events (set
        profile_memory=True).
    """
    sentences = []
    lacks = _list_missing(why.cannot_tell)
    if lacks:
        where = " in the part that was read" if why._ends_early else ""
        sentences.append(f"Not recorded{where}: {'; '.join(lacks)}.")
    if Unknown("ceiling", LISTED_DEVICE, "") in why.cannot_tell:
        sentences.append("The peak rates of this device are unknown.")
    return " ".join(sentences)


def _list_missing(unknown: Iterable[Unknown]) -> list[str]:
    """Return what is missing, each once, with the option that records it. What cannot
    be recorded is left out."""
    can_be_recorded = [lack for lack in unknown if lack.record_with]
    by_option = by_key(can_be_recorded, key=lambda lack: lack.record_with)
    lacks = []
    for option, of_option in by_option.items():
        missing = dict.fromkeys(lack.missing for lack in of_option)
        *before, last = missing
        listed_missing = f"{', '.join(before)} and {last}" if before else last
        lacks.append(f"{listed_missing} ({phrase_option(option)})")
    return lacks


def phrase_option(option: str) -> str:
    """Return what to do with an option to record what is missing.

    >>> phrase_option("with_stack=True"), phrase_option("record_function")
    ('set with_stack=True', 'use record_function')
    """
    if option.startswith("ProfilerActivity."):
        return f"add {option}"
    verb = "set" if option.endswith("=True") else "use"
    return f"{verb} {option}"


def describe_cover(gap: Gap) -> str:
    """Return what the CPU did during most of a gap: the frame, op, module and
    annotation, the most informative first. Without any, it is the event that ended the
    gap."""
    layers = (PATH.sub("", gap.frame or ""), gap.op, gap.module, gap.annotation)
    return ", ".join(filter(None, layers)) or f"before {gap.next}"


def listed(why: Why) -> Sequence[Gap]:
    """The longest gaps that are worth a line."""
    return [gap for gap in why.gaps if gap.dur_ns >= LISTED_NS]


def named(name: str) -> str:
    """Return a class of time or a reason of idle time in words."""
    return CLASSES[name] if name in CLASSES else IDLE[name].sentence


GPU_TIME = "GPU time"
MAX_NAMES = 3  # of a breakdown in a sentence
MAX_NAME_CELLS = 48
BUSY_SHARE = 0.8
"""From this share of the time asked about on, the GPU itself is the limit."""


def is_gpu_limit(why: Why) -> bool:
    """Return whether the GPU itself is the limit, because it is busy for most of what
    the answer is about."""
    if not why.devices:
        return False
    sums = make_headline(why).sums
    busy_ns = sums["span"] - sums["idle"]
    return busy_ns >= BUSY_SHARE * sums["span"] > 0


def divide_time(why: Why) -> list[BreakdownPiece]:
    """Return the ways to divide the time that is not idle, without empty ones. It is
    GPU time, or else the time of another accelerator and of CPU threads."""
    if why.cpu_work is not None:
        return [*divide_accelerator_time(why), *divide_cpu_time(why.cpu_work)]
    if why._breakdown is None:
        return divide_accelerator_time(why)
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


def divide_accelerator_time(why: Why) -> list[BreakdownPiece]:
    """Return the time of an accelerator that is no GPU, divided by event, in a list.
    Empty if there is none."""
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
    """Return a sentence about what takes the time of the GPU, or "" if the GPU is not
    the limit. Names are cut, except for output to a file.

        GPU time by kernel: gemm bf16 39 %, ...; by module or annotation: Qwen2MLP 31 %.
    """
    name_cells = width if isinstance(width, UncutWidth) else MAX_NAME_CELLS
    if why.cpu_work is not None:
        sentences = [
            describe_breakdown(parts, name_cells)
            for parts in (divide_accelerator_time(why), divide_cpu_time(why.cpu_work))
            if parts
        ]
        return " ".join(filter(None, sentences))
    if why._breakdown is None or not why._breakdown.kernels or not is_gpu_limit(why):
        return ""
    texts = []
    for part in divide_time(why):
        shares = [
            f"{cut_line(share.name, name_cells)} {percent(share.ns, part.whole_ns)}"
            for share in part.shares[:MAX_NAMES]
        ]
        texts.append(f"by {part.by}: {', '.join(shares)}")
    return f"{GPU_TIME} {'; '.join(texts)}."


def find_main_reason(gap: Gap) -> str:
    """Return the key of the reason of idle time with the most time in a gap. It is
    "queued" if the gap has no reason."""
    return max(gap.idle, key=lambda name: gap.idle[name], default="queued")
