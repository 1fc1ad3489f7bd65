"""Finds slices: by a part of their name, or by a query (query.py)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from fusetui.analysis.questions.query import (
    KINDS,
    OF_ARGS,
    OF_NAMES,
    Bound,
    Pattern,
    Query,
    Term,
    Word,
    matching,
    misread,
    words_of,
)
from fusetui.gpu.kernel_names import KernelName, decode
from fusetui.gpu.kernel_names.record import tile_words
from fusetui.text.figures import count
from fusetui.text.patterns import late
from fusetui.trace.layout.steps import launched_in_steps, steps_of
from fusetui.trace.model.arrays import Flags, Rows
from fusetui.trace.model.categories import GPU_LAYERS, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.events import arguments

Hits = tuple[Rows, float]
"""Rows in time order, and the share of those that may be hits that was looked at."""

ARGS = (
    *(
        "Input Dims",
        "Input type",
        "Concrete Inputs",
        "Input Strides",
        "Module Hierarchy",
    ),
    *(
        "Collective name",
        "Process Group Name",
        "Process Group Description",
        "dtype",
        "Group size",
    ),
    *(
        "In msg nelems",
        "Out msg nelems",
        "kernel_backend",
        "kernel_file",
        "kernel_kwargs",
    ),
    *("grid", "block", "registers per thread", "shared memory", "bytes", "kernel"),
)
"""The args that `args:` looks into."""

ROLES = {
    **{kind: (Role[kind.upper()],) for kind in KINDS},
    "annotation": (Role.ANNOTATION, Role.GPU_ANNOTATION),
}
"""Of each kind."""

SHAPE = late(r"\d+(?:x\d+)+")  # a word that shapes are compared with
PLAIN = late(r"[\w.,:;\[\](){}=+*#@!?|-]+", re.ASCII)
"""Text that JSON has only one way to write."""
MOST_STREAMS = 8  # that a sentence lists


NameTexts = dict[tuple[str, bool], list[str]]
"""What each name says, by field, as written or in lower case; as many texts as
`trace.names`."""


def texts_of(trace: Trace) -> NameTexts:
    """Made once per trace: every kernel name is decoded."""
    gpu = np.zeros(len(trace.names) + 1, dtype=np.bool_)
    gpu[trace.name[trace.gpu_rows]] = True
    decoded = [
        decode(n) if is_gpu else None
        for n, is_gpu in zip(trace.names, gpu, strict=False)
    ]
    written = {"name": list(trace.names)}
    for field, text in FROM_NAME.items():
        written[field] = [text(found) if found else "" for found in decoded]
    written[""] = ["\n".join(parts) for parts in zip(*written.values(), strict=True)]
    folded = {
        (field, True): [text.lower() for text in texts]
        for field, texts in written.items()
    }
    return {**{(field, False): texts for field, texts in written.items()}, **folded}


def search(trace: Trace, texts: NameTexts, query: Query) -> Rows:
    """The rows for which the query holds but for terms about args, in time order.
    Raises WrongQuery when a pattern takes too long."""
    return _united(trace, [_rows_of(trace, texts, way) for way in query.ways])


def _rows_of(trace: Trace, texts: NameTexts, terms: Sequence[Term]) -> Rows:
    """Those for which all terms hold but those about args."""
    names = np.ones(len(trace.names) + 1, dtype=np.bool_)
    for term in terms:
        if isinstance(term, Pattern):
            names[:-1] &= matching(term.text, trace.names) ^ term.excluded
        elif isinstance(term, Word) and (not term.field or term.field in OF_NAMES):
            names[:-1] &= _names_with(texts, term) ^ term.excluded
    rows = np.flatnonzero(names[trace.name[: trace.recorded()]])
    for term in terms:
        if isinstance(term, Bound):
            times = (
                trace.dur[rows]
                if term.field == "dur"
                else trace.start[rows] - trace.begin_ns
            )
            beyond = times > term.value if term.above else times < term.value
            rows = rows[beyond ^ term.excluded]
        elif isinstance(term, Word) and term.field in OF_ROW:
            rows = rows[OF_ROW[term.field](trace, rows, term) ^ term.excluded]
    return rows


def _united(trace: Trace, found: Sequence[Rows]) -> Rows:
    """The rows of all, in time order."""
    rows = np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.intp)
    return _in_order(trace, rows)


def _after_another(trace: Trace, ways: Sequence[Iterator[Hits]]) -> Iterator[Hits]:
    """Of several alternatives, one after the other."""
    before = together = np.empty(0, dtype=np.intp)
    for number, found in enumerate(ways):
        for rows, share in found:
            together = _united(trace, [before, rows])
            yield together, (number + share) / len(ways)
        before = together


def by_words(
    trace: Trace, texts: NameTexts, query: Query, named: Rows
) -> Iterator[Hits]:
    """Rows that are not `named`: of which names do not say all words of the query, but
    args do, as by_args finds them. Python frames are left out: they have no args of
    interest. Raises WrongQuery when a pattern takes too long."""
    is_left = trace.role != Role.PYTHON
    is_left[named] = False

    def found(way: Sequence[Term], words: Sequence[Word]) -> Iterator[Hits]:
        rows = _rows_of(trace, texts, [term for term in way if term not in words])
        rows = _in_order(trace, rows[is_left[rows]])
        said = [
            np.append(_names_with(texts, word), False)[trace.name[rows]]
            for word in words
        ]
        return _as_read(trace, rows, ARGS, words, said)

    ways = ((way, words_of(way)) for way in query.ways)
    return _after_another(trace, [found(way, words) for way, words in ways if words])


def by_args(trace: Trace, texts: NameTexts, query: Query) -> Iterator[Hits]:
    """The rows for which the terms about args hold too, as the file is read. Raises
    WrongQuery when a pattern takes too long."""

    def found(way: Sequence[Term]) -> Iterator[Hits]:
        rows = _in_order(trace, _rows_of(trace, texts, way))
        terms = [
            term for term in way if isinstance(term, Word) and term.field in OF_ARGS
        ]
        names = (
            ("Input Dims",) if all(term.field == "shape" for term in terms) else ARGS
        )
        said = [np.zeros(len(rows), np.bool_) for _ in terms]
        return (
            _as_read(trace, rows, names, terms, said) if terms else iter([(rows, 1.0)])
        )

    return _after_another(trace, list(map(found, query.ways)))


def _as_read(
    trace: Trace,
    rows: Rows,
    names: tuple[str, ...],
    terms: Sequence[Word],
    said: Sequence[Flags],
) -> Iterator[Hits]:
    """All rows that are found so far, in their order, and the share that was looked at.
    One stretch of the file after the other is read; a term is found in the args of the
    row or of its op, or is `said` by the row's name."""
    if not len(rows):
        yield rows, 1.0
        return
    firsts = np.cumsum([0, *(stretch.events for stretch in trace.elements.stretches)])
    events = [
        trace.order[np.where(trace.op[rows] >= 0, trace.op[rows], rows)],
        trace.order[rows],
    ]
    places = [np.searchsorted(firsts, orders, side="right") for orders in events]
    last = np.maximum(*places)
    numbers = np.unique(np.concatenate(places)).tolist()
    for done, number in enumerate(numbers, 1):
        if occur(trace, number - 1, terms):
            here = [np.flatnonzero(place == number) for place in places]
            orders = [one[which] for one, which in zip(events, here, strict=True)]
            each, where = np.unique(np.concatenate(orders), return_inverse=True)
            args = arguments(trace.elements, each, names)
            for term, flag in zip(terms, said, strict=True):
                found = np.array(
                    [_holds(term, texts) for texts in args.distinct] + [False]
                )
                of_each = found[args.number][where]
                flag[here[0]] |= of_each[: len(here[0])]
                flag[here[1]] |= of_each[len(here[0]) :]
        holds = [flag ^ term.excluded for term, flag in zip(terms, said, strict=True)]
        yield rows[np.logical_and.reduce([last <= number, *holds])], done / len(numbers)


def _holds(term: Word, texts: tuple[bytes, ...]) -> bool:
    if term.field == "shape" or (not term.field and SHAPE.fullmatch(term.text)):
        wanted = term.text.lower().replace("x", ",").replace(" ", "")
        dims = texts[0].decode("utf-8", "replace").replace(" ", "")
        if any(f"{before}{wanted}{after}" in dims for before in "[," for after in "],"):
            return True
        if term.field:
            return False
    text = b"\n".join(texts).decode("utf-8", "replace")
    text = text.lower() if term.folds else text
    return term.text in text or term.text in text.replace(" ", "")


def _in_order(trace: Trace, rows: Rows) -> Rows:
    return rows[np.argsort(trace.start[rows], kind="stable")]


def _names_with(texts: NameTexts, term: Word) -> Flags:
    given = texts[term.field, term.folds]
    if not term.whole:
        found = [term.text in text for text in given]
    elif term.field == "name":
        found = [term.text == text for text in given]
    else:  # they say several things
        found = [term.text in text.split() for text in given]
    return np.array(found, dtype=np.bool_)


def _on_op(trace: Trace, rows: Rows, term: Word) -> Flags:
    named, op = trace.named(term.holds), trace.op[rows]
    return named[np.where(op >= 0, trace.name[op], -1)]


def _on_stream(trace: Trace, rows: Rows, term: Word) -> Flags:
    wanted = [t.layer in GPU_LAYERS and str(t.tid) == term.text for t in trace.tracks]
    return np.array([*wanted, False])[trace.track[rows]]


def _on_thread(trace: Trace, rows: Rows, term: Word) -> Flags:
    wanted = [term.text in (str(track.tid), track.label) for track in trace.tracks]
    named = [term.text.lower() in track.label.lower() for track in trace.tracks]
    chosen = wanted if any(wanted) or term.whole else named
    return np.array([*chosen, False])[trace.track[rows]]


def _in_step(trace: Trace, rows: Rows, term: Word) -> Flags:
    """Those that start in the step, and the GPU events that it launched."""
    steps = steps_of(trace)
    at = steps.place(number_of(term.text))
    if at < 0:
        return np.zeros(len(rows), dtype=np.bool_)
    launched = np.isin(rows, launched_in_steps(trace)[at])
    return np.where(
        np.isin(rows, trace.gpu_rows), launched, steps.at(trace.start[rows]) == at
    )


def number_of(text: str) -> int:
    """The number of a step; -1 for none."""
    return int(text) if text.isdecimal() and len(text) < 19 else -1


OF_ROW: dict[str, Callable[[Trace, Rows, Word], Flags]] = {
    "op": _on_op,
    "stream": _on_stream,
    "thread": _on_thread,
    "kind": lambda trace, rows, term: np.isin(
        trace.role[rows], ROLES[term.text.lower()]
    ),
    "step": _in_step,
}


def _types(found: KernelName) -> str:
    given = (
        found.dtype,
        found.dtype_a,
        found.dtype_b,
        found.dtype_acc,
        found.dtype_out,
    )
    return " ".join(dict.fromkeys(filter(None, given)))


FROM_NAME: dict[str, Callable[[KernelName], str]] = {
    "family": lambda found: " ".join(
        filter(None, (found.op, found.family, found.collective))
    ),
    "dtype": _types,
    "tile": lambda found: tile_words(found.tile_m, found.tile_n, found.tile_k) or "",
    "arch": lambda found: " ".join(filter(None, (found.arch, found.arch_name))),
    "short": lambda found: found.short,
}


def occur(trace: Trace, number: int, words: Sequence[Word]) -> bool:
    """Whether one of the words may be in stretch `number`, blanks aside. Certain only
    if not."""
    texts = [word.text.replace(" ", "") for word in words]
    if not all(map(PLAIN.fullmatch, texts)):
        return True
    stretch = trace.elements.stretches[number]
    try:
        written = bytes(trace.elements.text.part(stretch.start, stretch.end)).replace(
            b" ", b""
        )
    except (OSError, TraceError):
        return True
    folded = written.lower()
    shapes = (text.lower().replace("x", ",") for text in texts)
    spelled = zip(words, texts, strict=True)
    return any(shape.encode() in folded for shape in shapes) or any(
        text.encode() in (folded if word.folds else written) for word, text in spelled
    )


def why_nothing(trace: Trace, query: Query) -> str:
    """A sentence about what the query asks for that this trace does not have; "" for
    none."""
    for term in query.terms:
        if not isinstance(term, Word) or term.excluded:
            continue
        steps = steps_of(trace)
        if term.field == "step" and steps.place(number_of(term.text)) < 0:
            return f"this trace has {steps.known}"
        if term.field == "stream" and (said := _other_streams(trace, term.text)):
            return said
    return misread(query)


def why_no_kernels(trace: Trace) -> str:
    """A sentence about a trace without kernels: what there is instead."""
    if number := len(trace.gpu_rows):
        them = (
            "its GPU event is" if number == 1 else f"its {count(number)} GPU events are"
        )
        return f"no kernels in this trace: {them} no kernel"
    if len(trace.rows_of(Role.DEVICE)):
        return (
            "no kernels in this trace: what its device did is not recorded as kernels"
        )
    return "no kernels in this trace: no GPU event was recorded (fusetui ops lists the CPU ops)"


def _other_streams(trace: Trace, text: str) -> str:
    """A sentence about the streams that there are, if there is none with this
    number."""
    streams = {str(track.tid) for track in trace.tracks if track.layer in GPU_LAYERS}
    if text in streams:
        return ""
    if not streams:
        return "this trace has no streams"
    listed = ", ".join(sorted(streams, key=lambda tid: (len(tid), tid))[:MOST_STREAMS])
    more = ", ..." if len(streams) > MOST_STREAMS else ""
    which = (
        "only stream of this trace is"
        if len(streams) == 1
        else "streams of this trace are"
    )
    return f"the {which} {listed}{more}"
