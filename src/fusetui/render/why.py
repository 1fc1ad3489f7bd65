"""The text of `why`: the answer first, then the evidence, on one screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from textwrap import wrap

from fusetui.render.gaps import gap_rows, gaps_table
from fusetui.trace.insights.model import Why
from fusetui.trace.insights.versus import CLASSES as PARTS
from fusetui.trace.insights.versus import median_step, steps_tell, totals
from fusetui.trace.insights.words import CLASSES, REASONS, WHILE
from fusetui.trace.text.cutting import clip
from fusetui.trace.text.figures import count, duration, percent, plural
from fusetui.trace.text.printable import printable
from fusetui.trace.text.tables import CUT, Column, table

MOST_LINES = 25
MOST_UNKNOWN = 3
WIDEST = 96
REASON_ROWS = 4
THREADS = 10
GAPS = 4
FEWEST_GAPS = 2
CUT_OFF = "waits-outside"
"""A likely finding of this rule means that work from before the window is missing."""

Sums = Counter[str]


def why_text(found: Why, width: int) -> str:
    """At most MOST_LINES lines of at most `width` columns, for any trace."""
    account = _account(found, width) if found.devices else _threads(found, width)
    paragraphs = [_head(found, width), account, _unknown(found)]
    paragraphs.insert(2, _findings(found, _room(paragraphs), width))
    room = min(_room(paragraphs) - 1, GAPS + 2)
    if room >= FEWEST_GAPS + 2 and found.gaps:
        rows = gap_rows(found.gaps[: room - 2], found.base_ns)
        paragraphs.insert(3, ["longest gaps", *gaps_table(rows, width).split("\n")])
    lines = "\n\n".join("\n".join(paragraph) for paragraph in paragraphs if paragraph).split("\n")
    return "\n".join(clip(line, width, CUT) for line in lines[:MOST_LINES])


def _room(paragraphs: Sequence[Sequence[str]]) -> int:
    """The number of lines left for one more paragraph."""
    return MOST_LINES - sum(len(paragraph) + 1 for paragraph in paragraphs if paragraph)


def answer(found: Why) -> str:
    """The first sentence: how long, how busy, and the main reason for idle time."""
    if not found.devices:
        threads = plural(len(found.cpu), "CPU thread")
        return f"No GPU events were recorded: this is what {threads} did."
    what, sums = headline(found)
    return f"{what} {_busy(found, sums)} {_idle(sums)}".strip()


def headline(found: Why) -> tuple[str, Sums]:
    """What the figures of the answer are about, and their sums over all devices."""
    if steps_tell(found):
        step = median_step(found.steps)
        of = "" if len(found.steps) == 1 else f" (the median of {count(len(found.steps))})"
        return f"{duration(step.dur_ns)} a step{of}.", totals(step.devices)
    sums = totals(found.devices)
    if found.about:
        return f"{found.about}: {duration(found.devices[0].span_ns)}.", sums
    spans = "GPU's span is" if len(found.devices) == 1 else "GPUs' spans add up to"
    return f"The {spans} {duration(sums['span'])}.", sums


def _busy(found: Why, sums: Sums) -> str:
    busy, gpus = sums["span"] - sums["idle"], len(found.devices)
    who = "The GPU works" if gpus == 1 else f"The {count(gpus)} GPUs work"
    if any(one.rule == CUT_OFF and one.why_likely for one in found.findings):
        return f"{who} {duration(busy)} of it, and longer on work from before the window."
    return f"{who} {percent(busy, sums['span'])} of it."


def _idle(sums: Sums) -> str:
    why = [(ns, name) for name, ns in sums.items() if name in REASONS and ns]
    if not why:
        return "It is never idle." if sums["span"] else ""
    ns, name = max(why)
    most = "all" if ns == sums["idle"] else duration(ns)
    return f"{duration(sums['idle'])} is idle, {most} of it {WHILE[name]}."


def _head(found: Why, width: int) -> list[str]:
    return [printable(found.file), *wrap(printable(answer(found)), min(width, WIDEST))]


def _account(found: Why, width: int) -> list[str]:
    """Classes and reasons, for the median step and for the span."""
    columns = _columns(found)
    main = columns[0][1]
    reasons = sorted((name for name in REASONS if main[name]), key=lambda name: -main[name])
    shown, rest = reasons[:REASON_ROWS], reasons[REASON_ROWS:]
    names = [(name, CLASSES[name]) for name in PARTS if any(sums[name] for _, sums in columns)]
    hidden = [(name, text) for name, text in HIDDEN.items() if any(s[name] for _, s in columns)]
    labels = [*names, *((name, f"  {REASONS[name]}") for name in shown)]
    rows = [_row(text, [sums[name] for _, sums in columns], columns) for name, text in labels]
    if rest:
        others = [sum(sums[name] for name in rest) for _, sums in columns]
        rows.append(_row(f"  {plural(len(rest), 'other reason')}", others, columns))
    rows += [_row(text, [sums[name] for _, sums in columns], columns) for name, text in hidden]
    titles = [Column(device_text(found), left=True)]
    for title, _ in columns:
        titles += [Column(title), Column("share")]
    return table(titles, rows, width).split("\n")


HIDDEN = {
    "hidden_comm": "beside compute: communication",
    "hidden_copy": "beside both: copies",
}


def device_text(found: Why) -> str:
    """The name of the only device, or the number of devices."""
    if len(found.devices) != 1:
        return f"{count(len(found.devices))} GPUs together"
    one = found.devices[0]
    return printable(f"GPU {one.device} {one.name}".rstrip())


def _columns(found: Why) -> list[tuple[str, Sums]]:
    if found.about:
        return [("time", totals(found.devices))]
    whole = ("span", totals(found.devices))
    if not steps_tell(found):
        return [whole]
    return [("step", totals(median_step(found.steps).devices)), whole]


def _row(text: str, amounts: Sequence[int], columns: Sequence[tuple[str, Sums]]) -> tuple[str, ...]:
    cells = [text]
    for ns, (_, sums) in zip(amounts, columns, strict=True):
        cells += [duration(ns), percent(ns, sums["span"])] if ns else ["", ""]
    return tuple(cells)


def _threads(found: Why, width: int) -> list[str]:
    columns = [Column(title) for title in ("ops", "Python", "waiting", "nothing", "of")]
    columns.append(Column("thread", left=True))
    busiest = sorted(found.cpu, key=lambda one: -(one.op_ns + one.python_ns))[:THREADS]
    rows = [
        (
            *(duration(ns) if ns else "" for ns in (t.op_ns, t.python_ns, t.wait_ns, t.nothing_ns)),
            duration(t.span_ns),
            printable(t.label),
        )
        for t in busiest
    ]
    rest = len(found.cpu) - len(busiest)
    more = [f"... and {plural(rest, 'more thread')} (--json has all)"] if rest else []
    return [*table(columns, rows, width).split("\n"), *more] if rows else []


def _findings(found: Why, room: int, width: int) -> list[str]:
    """As many findings as fit, the first one with its remedy."""
    lines = _ceiling(found, width)
    for number, one in enumerate(found.findings, 1):
        remedy = f" Try: {one.try_}" if number == 1 and one.try_ else ""
        text = f"{number}. {one.text}{remedy}"
        more = wrap(printable(text), min(width, WIDEST), subsequent_indent="   ")
        rest = len(found.findings) - number
        if len(lines) + len(more) > room - bool(rest):
            return [*lines, f"... and {plural(rest + 1, 'more finding')} (--json has all)"]
        lines += more
    return lines


def _ceiling(found: Why, width: int) -> list[str]:
    """The most that better kernels could save, over the kernels for which that is known."""
    known = found.ceiling
    if not known or not known.known_ns:
        return []
    text = (
        f"Better kernels could save {duration(known.at_stake_ns)} at most of the "
        f"{duration(known.known_ns)} whose work is known "
        f"({percent(known.known_ns, known.known_ns + known.unknown_ns)} of the kernels' time)."
    )
    return wrap(text, min(width, WIDEST))


def _unknown(found: Why) -> list[str]:
    """Each thing that was not recorded, listed once however many answers need it."""
    lacks = dict.fromkeys((one.missing, one.record_with) for one in found.cannot_tell)
    return [
        f"Not recorded: {printable(missing)}. To record: {printable(record_with)}"
        for missing, record_with in islice(lacks, MOST_UNKNOWN)
    ]
