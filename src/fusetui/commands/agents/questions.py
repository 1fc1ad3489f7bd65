"""The answers of the tools that do not return tables: a heading, and the part that may
be long."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from fusetui.analysis.why.selection import Selection
from fusetui.commands.agents.opened import CANCELLED, KeptTrace, Opener
from fusetui.commands.agents.tools import FEW, LISTS, ROWS_OF
from fusetui.commands.errors import CommandError
from fusetui.commands.loading import secret_notices
from fusetui.text.printable import is_printable
from fusetui.trace.model.errors import CannotReadError
from fusetui.trace.model.report import Stop

if TYPE_CHECKING:
    from fusetui.analysis.reproduce.model import Call
    from fusetui.trace.model.columns import Trace
    from fusetui.trace.snapshot.columns import Snapshot

MAX_CALLS = 100
"""That are listed to be made again."""

MAX_SLACK = 20
"""So many kernels and ops are given with their slack."""

SIDES_OF_A_ROW = ("a", "b", "a_rows", "b_rows")
"""The fields of a row of a diff that list names, or rows of slices, of a side."""

HOLDERS = ("by_code", "by_module", "by_op")
"""The keys of a device that hold what the rows of an answer about memory have."""


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


class Answer(NamedTuple):
    """What is said once, and what there may be much of, which pages divide."""

    head: dict[str, object]
    items: PagedItems


def every(key: str, items: Sequence[object]) -> PagedItems:
    """Return all of these items, to be given in pages under this key."""
    return PagedItems(key=key, total=len(items), rest=lambda begin: items[begin:])


def drop_duplicates(notes: Iterable[str]) -> list[str]:
    """Return the notes in their order, each of them once."""
    return list(dict.fromkeys(notes))


def make_head(opened: KeptTrace) -> dict[str, object]:
    """Return what each answer about a trace begins with: its name, and notes on its
    figures."""
    return {"trace": opened.name, "notes": opened.notes}


def _fields_except(record: msgspec.Struct, *left_out: str) -> dict[str, Any]:
    """Return the fields of a record by name, in their order, without those in
    `left_out`."""
    return {
        name: value for name, value in asdict(record).items() if name not in left_out
    }


def _answer_open(_: Any, opened: KeptTrace) -> Answer:
    """Return the answer of the tool `open`: the key figures of a trace. Its steps are
    the items."""
    from fusetui.analysis.questions.summary import summary

    figures = summary(opened.trace)
    head: dict[str, object] = {
        "trace": opened.name,
        "notes": [*opened.notes, *secret_notices(opened.trace)],
        "figures": _fields_except(figures, *LISTS),
    }
    return Answer(head=head, items=every("steps", figures.steps))


def _answer_why(asked: Any, opened: KeptTrace) -> Answer:
    """Return the answer of the tool `why`: where the time of a trace, or of one step,
    went. Its findings are the items, as dicts; their keys follow ROWS_OF."""
    from fusetui.analysis.replay.worth import with_worth
    from fusetui.analysis.why.answer import why
    from fusetui.report.why_answer import answer

    part = Selection(step=asked.step)
    explained = with_worth(opened.trace, why(opened.trace, part))
    head: dict[str, object] = {
        **make_head(opened),
        "answer": answer(explained),
        "about": explained.about,
        "devices": explained.devices,
        "threads": () if explained.devices else explained.cpu,
        "ceiling": explained.ceiling,
        "worth_of": explained.worth_of,
        "worth_before_ns": explained.worth_before_ns,
        "residual_share": explained.residual_share,
        "cannot_tell": explained.cannot_tell,
    }
    findings = []
    for finding in explained.findings:
        document = msgspec.to_builtins(finding)
        findings.append(
            {ROWS_OF.get(key, key): value for key, value in document.items()}
        )
    return Answer(head=head, items=every("findings", findings))


def _answer_diff(_: Any, a: KeptTrace, b: KeptTrace) -> Answer:
    """Return the answer of the tool `diff`: what trace b does differently from trace a.
    Rows come with the largest change of time first. Rows that do not count in the sum
    (dispatch) are last."""
    from fusetui.analysis.diff.compare import diff
    from fusetui.report.diff import judgment

    difference = diff(a.trace, b.trace)
    rows = []
    for row in difference.rows:
        shortened_sides = {key: getattr(row, key)[:FEW] for key in SIDES_OF_A_ROW}
        rows.append(replace(row, **shortened_sides))
    rows.sort(key=lambda row: (not row.counts, -abs(row.change_ns)))
    head: dict[str, object] = {
        "a": a.name,
        "b": b.name,
        "answer": judgment(difference),
        "verdict": difference.verdict,
        "step": difference.step,
        "story": difference.story,
        "accounting": difference.accounting,
        "by_work": difference.by_work,
        "notes": drop_duplicates((*difference.notes, *a.notes, *b.notes)),
    }
    return Answer(head=head, items=every("rows", rows))


def _answer_slice(asked: Any, opened: KeptTrace) -> Answer:
    """Return the answer of the tool `slice`: a row of the table `slices`, with its args
    as items. Raises CommandError if the trace has no such row."""
    trace = opened.trace
    row = asked.row
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
    head: dict[str, object] = {**make_head(opened), "slice": about}
    return Answer(head=head, items=every("args", args))


def _answer_whatif(asked: Any, opened: KeptTrace) -> Answer:
    """Return the answer of the tool `whatif`: the estimated gain of changes, by a
    replay of the trace. Its steps are the items."""
    from fusetui.analysis.replay.whatif import whatif

    replayed = whatif(opened.trace, asked.changes, asked.step)
    figures = _fields_except(replayed, "steps", "notes")
    head = {
        **make_head(opened),
        **figures,
        "replay_notes": replayed.notes,
        "abstains": replayed.abstains,
    }
    return Answer(head=head, items=every("steps", replayed.steps))


def _answer_path(_: Any, opened: KeptTrace) -> Answer:
    """Return the answer of the tool `path`: the critical path of a trace, with its rows
    as items. Of the slack of other rows only the first MAX_SLACK are given."""
    from fusetui.analysis.replay.path import path

    critical = path(opened.trace)
    figures = _fields_except(critical, "rows")
    figures["slack"] = critical.slack[:MAX_SLACK]
    figures["slack_total"] = len(critical.slack)
    head = {**make_head(opened), **figures}
    return Answer(head=head, items=every("rows", critical.rows))


def _answer_check(asked: Any, opened: KeptTrace) -> Answer:
    """Return the answer of the tool `check`: whether the guessed numbers of kernels are
    right. The guesses are the items. Raises Error if the guess cannot be parsed."""
    from fusetui.analysis.questions.computing import count_kinds_by_step
    from fusetui.capture.record import compare_guess, parse_guess

    expected = parse_guess(asked.expect)
    counted = count_kinds_by_step(opened.trace)
    guesses = compare_guess(expected, counted)
    head: dict[str, object] = {
        **make_head(opened),
        "per": "step" if counted.steps else "trace",
        "counted": "kernels" if counted.on_gpu else "cpu_ops",
        "right": all(guess.right for guess in guesses),
    }
    rows = [
        {
            "kind": guess.kind,
            "expected": guess.expected,
            "found": guess.found,
            "right": guess.right,
        }
        for guess in guesses
    ]
    return Answer(head=head, items=every("guesses", rows))


def _answer_reproduce(asked: Any, opened: KeptTrace) -> Answer:
    """Return the answer of the tool `reproduce`. Without op, kernel and row, its items
    are the calls that took the most time.

    Else they are the lines of a script that repeats one call, or of the generated code
    that it runs. Raises Error.
    """
    from fusetui.analysis.reproduce.select import call_asked, most_expensive_calls
    from fusetui.report.reproduce.documents import reproduce_document

    trace = opened.trace
    if not asked.op and not asked.kernel and asked.row is None:
        if asked.generated:
            raise CommandError("generated needs a kernel, an op or a row.")
        calls = most_expensive_calls(trace, MAX_CALLS)
        document = reproduce_document(calls)
        return Answer(head=make_head(opened), items=every("calls", document.calls))
    call = call_asked(
        trace, op=asked.op or "", kernel=asked.kernel or "", row=asked.row
    )
    script = _make_script(trace, call, asked.generated)
    (about,) = reproduce_document([call]).calls
    head: dict[str, object] = {
        **make_head(opened),
        "call": about,
        "file": script.file_name,
        "about_file": script.about,
    }
    return Answer(head=head, items=every("lines", script.text.split("\n")))


class _Script(NamedTuple):
    """The text of a file to be written, and what its reader has to know."""

    file_name: str
    text: str
    about: str


SCRIPT_NAME = "reproduced.py"


def _make_script(trace: Trace, call: Call, is_code: bool) -> _Script:
    """Return the script that repeats a call; if `is_code`, the code that torch.compile
    generated for it. Raises Error if the call has no script, or no generated code that
    was asked for."""
    from fusetui.analysis.reproduce.generated import (
        NoGeneratedCodeError,
        find_generated_code,
    )
    from fusetui.analysis.reproduce.model import CallKind
    from fusetui.report.reproduce.script import (
        generated_path,
        generated_script,
        script_of,
    )
    from fusetui.report.reproduce.wording import CODE_OF_LOG, name_of, why_not

    if call.kind is CallKind.NONE:
        raise CommandError(f"{name_of(call)} has no script: {why_not(call)}.")
    file = os.path.basename(trace.report.file)
    if call.kind is not CallKind.COMPILED and not is_code:
        return _Script(SCRIPT_NAME, script_of(call, file), "")
    code_name = generated_path(SCRIPT_NAME)
    try:
        generated = find_generated_code(trace, call)
    except NoGeneratedCodeError as error:
        if is_code:
            raise
        return _Script(SCRIPT_NAME, script_of(call, file), str(error))
    warning = CODE_OF_LOG.format(code_name, os.path.basename(generated.log))
    if is_code:
        text = generated.code.decode("utf-8", "replace")
        if not all(map(is_printable, text.split("\n"))):
            warning += (
                " Some of its characters are escaped here: --with-generated-code "
            )
            warning += "copies them as they are."
        return _Script(code_name, text, warning)
    return _Script(SCRIPT_NAME, generated_script(call, generated, file), warning)


WITH_TRACES: dict[str, Callable[..., Answer]] = {
    "open": _answer_open,
    "why": _answer_why,
    "diff": _answer_diff,
    "slice": _answer_slice,
    "whatif": _answer_whatif,
    "path": _answer_path,
    "reproduce": _answer_reproduce,
    "check": _answer_check,
}
"""What answers with the traces that were asked about."""


def _answer_serving(asked: Any, opener: Opener, stop: Stop) -> Answer:
    """Return the answer of the tool `serving`: the steps of an inference server, with
    lower bounds of their times. Steps are the items. Raises Error."""
    from fusetui.analysis.serving.answer import serving
    from fusetui.analysis.serving.config import read_config
    from fusetui.report.serving import make_serving_document

    config = None
    if asked.model_config:
        with opener.lent(asked.model_config) as config_path:
            config = read_config(config_path)
    opened = opener.open(asked.trace, stop)
    document = make_serving_document(serving(opened.trace, config))
    steps = document.pop("steps")
    del document["base_ns"]
    del document["file"]
    head = {**make_head(opened), **document}
    return Answer(head=head, items=every("steps", steps))


class _HeldMemory(NamedTuple):
    """Who holds the memory of some devices: documents of the devices, and rows."""

    devices: list[dict[str, Any]]
    rows: Sequence[object]
    notes: tuple[str, ...]


def _answer_memory(asked: Any, opener: Opener, stop: Stop) -> Answer:
    """Return the answer of the tool `memory`: who holds GPU memory at a moment.
    `asked.trace` names a memory snapshot or a trace. Raises CommandError, also if
    nothing was recorded at that moment."""
    from fusetui.analysis.memory.answer import NoMomentError
    from fusetui.commands.memory import is_trace
    from fusetui.trace.snapshot.reading import read_snapshot

    with opener.lent(asked.trace) as readable_path:
        snapshot = (
            None
            if is_trace(asked.trace, readable_path)
            else read_snapshot(readable_path)
        )
    try:
        if snapshot is None:
            held_memory = _memory_in_trace(asked, opener.open(asked.trace, stop))
        else:
            held_memory = _memory_in_snapshot(asked, snapshot)
    except NoMomentError as missing:
        raise CommandError(f"{asked.trace}: {missing}") from None
    for device in held_memory.devices:
        for key in HOLDERS:
            device.pop(key, None)
    head: dict[str, object] = {
        "trace": asked.trace,
        "notes": held_memory.notes,
        "at": asked.at,
        "devices": held_memory.devices,
    }
    return Answer(head=head, items=every("rows", held_memory.rows))


def _memory_in_trace(asked: Any, opened: KeptTrace) -> _HeldMemory:
    """Return who holds memory by the memory events of a trace. Rows are by op, because
    a trace knows no code lines. Raises CommandError if it has no memory events, and
    NoMomentError."""
    from fusetui.analysis.memory.of_trace import report_memory_of_trace, trace_start_us
    from fusetui.commands.memory import moment
    from fusetui.report.memory import rows_of
    from fusetui.report.memory_words import explain_no_events

    moment_us_or_name = moment(asked.at, trace_start_us(opened.trace))
    devices = report_memory_of_trace(opened.trace, moment_us_or_name)
    if not devices:
        raise CommandError(f"{asked.trace} has {explain_no_events(opened.trace)}.")
    rows = [row for device in devices for row in rows_of(device, "op")]
    documents = msgspec.to_builtins(devices)
    return _HeldMemory(devices=documents, rows=rows, notes=opened.notes)


def _memory_in_snapshot(asked: Any, snapshot: Snapshot) -> _HeldMemory:
    """Return who holds memory in a memory snapshot, grouped by `asked.by`. Raises
    CommandError for a wrong time, and NoMomentError if the time is outside the
    recording."""
    from fusetui.analysis.memory.answer import memory
    from fusetui.commands.memory import first_event_time, moment
    from fusetui.report.memory import make_memory_document, rows_of

    answer = memory(snapshot, moment(asked.at, first_event_time(snapshot)))
    rows = [row for device in answer.devices for row in rows_of(device, asked.by)]
    documents = msgspec.to_builtins(make_memory_document(answer).devices)
    return _HeldMemory(devices=documents, rows=rows, notes=())


def _answer_ranks(asked: Any, opener: Opener, stop: Stop) -> Answer:
    """Return the answer of the tool `ranks`: which rank of a job is late, and who waits
    for it. Ranks are the items; paths are replaced by names. Raises CommandError if no
    file is a rank."""
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
    head: dict[str, Any] = msgspec.to_builtins(ranks_document(answer))
    rows = head.pop("ranks")
    del head["clocks"]
    head["kinds"] = head["kinds"][:FEW]
    head["left_out_total"] = len(head["left_out"])
    head["left_out"] = head["left_out"][:FEW]
    return Answer(
        head=opener.with_names(head), items=every("ranks", opener.with_names(rows))
    )


WITH_FILES: dict[str, Callable[[Any, Opener, Stop], Answer]] = {
    "serving": _answer_serving,
    "memory": _answer_memory,
    "ranks": _answer_ranks,
}
"""What reads other files than traces, or more of them than stay open."""


def answer_without_traces(name: str, asked: Any, opener: Opener) -> Answer:
    """Return the answer of a tool that reads no trace: `decode` explains kernel names,
    `traces` lists files."""
    if name == "decode":
        from fusetui.gpu.kernel_names import decoded

        names = [decoded(kernel) for kernel in asked.names]
        return Answer(head={}, items=every("names", names))
    files, notes = opener.folders.listed()
    return Answer(head={"notes": notes}, items=every("traces", files))
