"""The answers of the tools that are no tables: of each the head, and what there may be
much of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from fusetui.analysis.why.selection import Selection
from fusetui.commands.agents.opened import CANCELLED, Opener, OpenTrace
from fusetui.commands.agents.tools import FEW, LISTS, ROWS_OF
from fusetui.commands.errors import CommandError
from fusetui.commands.loading import secret_notices
from fusetui.trace.model.errors import CannotReadError
from fusetui.trace.model.report import Stop

MOST_SLACK = 20  # kernels and ops whose slack is given


class PagedItems(msgspec.Struct, frozen=True, eq=False):
    """What an answer has some of: their key, how many exist, those from the n-th on,
    and how many of them were asked for; None: all."""

    key: str
    total: int
    rest: Callable[[int], Iterable[object]]
    asked: int | None = None

    @property
    def count(self) -> int:
        """How many the pages have together."""
        return self.total if self.asked is None else min(self.asked, self.total)


Answer = tuple[dict[str, object], PagedItems]


def every(key: str, items: Sequence[object]) -> PagedItems:
    """All of some items."""
    return PagedItems(key, len(items), lambda begin: items[begin:])


def head_of(opened: OpenTrace) -> dict[str, object]:
    """What each answer about a trace begins with."""
    return {"trace": opened.name, "notes": opened.notes}


def _open(_: Any, opened: OpenTrace) -> Answer:
    from fusetui.analysis.questions.summary import summary

    found = summary(opened.trace)
    figures = {
        name: value for name, value in asdict(found).items() if name not in LISTS
    }
    notes = [*opened.notes, *secret_notices(opened.trace)]
    return {**head_of(opened), "notes": notes, "figures": figures}, every(
        "steps", found.steps
    )


def _why(asked: Any, opened: OpenTrace) -> Answer:
    from fusetui.analysis.replay.worth import with_worth
    from fusetui.analysis.why.answer import why
    from fusetui.report.why_answer import answer

    found = with_worth(opened.trace, why(opened.trace, Selection(step=asked.step)))
    head: dict[str, object] = {
        **head_of(opened),
        "answer": answer(found),
        "about": found.about,
        "devices": found.devices,
        "threads": () if found.devices else found.cpu,
        "ceiling": found.ceiling,
        **{
            key: getattr(found, key)
            for key in ("worth_of", "worth_before_ns", "residual_share")
        },
        "cannot_tell": found.cannot_tell,
    }
    claims = [
        {
            ROWS_OF.get(key, key): value
            for key, value in msgspec.to_builtins(one).items()
        }
        for one in found.findings
    ]
    return head, every("findings", claims)


def _diff(_: Any, a: OpenTrace, b: OpenTrace) -> Answer:
    """The largest change first; dispatch, which is no part of the sum, last."""
    from fusetui.analysis.diff.compare import diff
    from fusetui.report.diff import judgment

    found = diff(a.trace, b.trace)
    many = ("a", "b", "a_rows", "b_rows")
    rows = [
        replace(one, **{key: getattr(one, key)[:FEW] for key in many})
        for one in found.rows
    ]
    rows.sort(key=lambda row: (not row.counts, -abs(row.change_ns)))
    same = ("verdict", "step", "story", "accounting", "by_work")
    head: dict[str, object] = {
        **{"a": a.name, "b": b.name, "answer": judgment(found)},
        **{name: getattr(found, name) for name in same},
        "notes": [*dict.fromkeys((*found.notes, *a.notes, *b.notes))],
    }
    return head, every("rows", rows)


def _slice(asked: Any, opened: OpenTrace) -> Answer:
    trace, row = opened.trace, asked.row
    if row >= trace.recorded():
        raise CommandError(
            f"{opened.name} has no row {row:,}, only 0 to {trace.recorded() - 1:,}."
        )
    about = {
        "row": row,
        "name": trace.name_of(row),
        "category": trace.category_of(row),
        "start_ns": int(trace.start[row]) - trace.begin_ns,
        "dur_ns": int(trace.dur[row]),
        "lane": trace.track_of(row).label,
    }
    args = [
        {"name": name, "value": value} for name, value in trace.args_of(row).items()
    ]
    return {**head_of(opened), "slice": about}, every("args", args)


def _whatif(asked: Any, opened: OpenTrace) -> Answer:
    from fusetui.analysis.replay.whatif import whatif

    found = whatif(opened.trace, asked.changes, asked.step)
    figures = {name: value for name, value in asdict(found).items() if name != "steps"}
    figures["replay_notes"] = figures.pop("notes")
    head = {**head_of(opened), **figures, "abstains": found.abstains}
    return head, every("steps", found.steps)


def _path(_: Any, opened: OpenTrace) -> Answer:
    from fusetui.analysis.replay.path import path

    found = path(opened.trace)
    figures = {name: value for name, value in asdict(found).items() if name != "rows"}
    figures |= {"slack": found.slack[:MOST_SLACK], "slack_total": len(found.slack)}
    return {**head_of(opened), **figures}, every("rows", found.rows)


def _check(asked: Any, opened: OpenTrace) -> Answer:
    from fusetui.analysis.questions.computing import tallies
    from fusetui.capture.record import compare, parse

    expected = parse(asked.expect)
    counted = tallies(opened.trace)
    guesses = compare(expected, counted)
    head: dict[str, object] = {
        **head_of(opened),
        "per": "step" if counted.steps else "trace",
        "counted": "kernels" if counted.on_gpu else "cpu_ops",
        "right": all(guess.right for guess in guesses),
    }
    rows = [
        {
            "kind": one.kind,
            "expected": one.expected,
            "found": one.found,
            "right": one.right,
        }
        for one in guesses
    ]
    return head, every("guesses", rows)


WITH_TRACES: dict[str, Callable[..., Answer]] = {
    "open": _open,
    "why": _why,
    "diff": _diff,
    "slice": _slice,
    "whatif": _whatif,
    "path": _path,
    "check": _check,
}
"""What answers with the traces that were asked about."""


def _serving(asked: Any, opener: Opener, stop: Stop) -> Answer:
    from fusetui.analysis.serving.answer import serving
    from fusetui.analysis.serving.config import read_config
    from fusetui.report.serving import serving_json

    config = None
    if asked.model_config:
        with opener.lent(asked.model_config) as place:
            config = read_config(place)
    opened = opener.open(asked.trace, stop)
    document = serving_json(serving(opened.trace, config))
    steps = document.pop("steps")
    del document["base_ns"], document["file"]
    return {**head_of(opened), **document}, every("steps", steps)


def _memory(asked: Any, opener: Opener, stop: Stop) -> Answer:
    from fusetui.analysis.memory.answer import NoMomentError, memory
    from fusetui.commands.memory import is_trace, moment
    from fusetui.report.memory import memory_document, rows_of
    from fusetui.report.memory_words import no_events
    from fusetui.trace.snapshot.reading import read_snapshot

    with opener.lent(asked.trace) as place:
        snapshot = None if is_trace(asked.trace, place) else read_snapshot(place)
    if snapshot is None:
        from fusetui.analysis.memory.of_trace import memory_of_trace, start_us

        opened = opener.open(asked.trace, stop)
        notes = opened.notes
        try:
            traced = memory_of_trace(
                opened.trace, moment(asked.at, start_us(opened.trace))
            )
        except NoMomentError as missing:
            raise CommandError(f"{asked.trace}: {missing}") from None
        if not traced:
            raise CommandError(f"{asked.trace} has {no_events(opened.trace)}.")
        devices = msgspec.to_builtins(traced)
        rows = [row for one in traced for row in rows_of(one, "op")]
    else:
        firsts = [int(one.time_us[0]) for one in snapshot.events if len(one)]
        try:
            found = memory(snapshot, moment(asked.at, min(firsts, default=-1)))
        except NoMomentError as missing:
            raise CommandError(f"{asked.trace}: {missing}") from None
        notes = ()
        devices = msgspec.to_builtins(memory_document(found).devices)
        rows = [row for device in found.devices for row in rows_of(device, asked.by)]
    for device in devices:
        for holders in ("by_code", "by_module", "by_op"):  # what the rows have
            device.pop(holders, None)
    head: dict[str, object] = {"trace": asked.trace, "notes": notes, "at": asked.at}
    return {**head, "devices": devices}, every("rows", rows)


def _ranks(asked: Any, opener: Opener, stop: Stop) -> Answer:
    from fusetui.analysis.ranks.answer import explained
    from fusetui.analysis.ranks.executors import summarize
    from fusetui.commands.ranks import without_passwords
    from fusetui.report.ranks import ranks_document

    def progress(*_: int) -> None:
        if stop():
            raise CannotReadError(CANCELLED)

    with opener.lent_job(asked.traces) as paths:
        summaries = summarize(paths, progress=progress)
    answer = without_passwords(explained(summaries).answer)
    if not answer.ranks:
        raise CommandError(answer.left_out[0].reason)
    document: dict[str, Any] = msgspec.to_builtins(ranks_document(answer))
    rows = document.pop("ranks")
    del document["clocks"]
    document["kinds"] = document["kinds"][:FEW]
    left_out = document["left_out"]
    document |= {"left_out": left_out[:FEW], "left_out_total": len(left_out)}
    renamed = opener.with_names({"head": document, "rows": rows})
    return renamed["head"], every("ranks", renamed["rows"])


WITH_FILES: dict[str, Callable[[Any, Opener, Stop], Answer]] = {
    "serving": _serving,
    "memory": _memory,
    "ranks": _ranks,
}
"""What reads other files than traces, or more of them than stay open."""


def answer_without_traces(name: str, asked: Any, opener: Opener) -> Answer:
    """Of the tools `decode` and `traces`."""
    if name == "decode":
        from fusetui.gpu.kernel_names import decoded

        return {}, every("names", [*map(decoded, asked.names)])
    files, notes = opener.folders.listed()
    head: Mapping[str, object] = {"notes": notes}
    return dict(head), every("traces", files)
