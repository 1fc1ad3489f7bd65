"""Finds slices: by a part of their name, or by a query (query.py)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from fusetui.analysis.questions.query import (
    FIELDS_OF_ARGS,
    FIELDS_OF_NAMES,
    KINDS,
    Bound,
    Pattern,
    Query,
    Term,
    Word,
    explain_misread_word,
    list_plain_words,
    match_names,
)
from fusetui.gpu.kernel_names import KernelName, decode
from fusetui.gpu.kernel_names.record import tile_words
from fusetui.gpu.kinds import LEGEND_ONLY_KINDS, SEARCHED_KINDS, searched_kinds
from fusetui.text.figures import count
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.layout.steps import launched_in_steps, steps_of
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int64s,
    Rows,
    distinct,
    last_at_or_before,
    prefix_sums,
)
from fusetui.trace.model.categories import GPU_LAYERS, GPU_ROLES, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.events import arguments
from fusetui.trace.model.memo import memo


class ArgsHits(NamedTuple):
    """What a search of args has found so far."""

    rows: Rows  # in time order
    searched_share: float  # how much of the search is done, up to 1.0


_SHAPES_ARG: Final = "Input Dims"
ARGS: Final = (
    _SHAPES_ARG,
    "Input type",
    "Concrete Inputs",
    "Input Strides",
    "Module Hierarchy",
    "Collective name",
    "Process Group Name",
    "Process Group Description",
    "dtype",
    "Group size",
    "In msg nelems",
    "Out msg nelems",
    "kernel_backend",
    "kernel_file",
    "kernel_kwargs",
    "grid",
    "block",
    "registers per thread",
    "shared memory",
    "bytes",
    "kernel",
)
"""The args that `args:` looks into; the first are the shapes."""

_ROLES_OF_KINDS: Final = {
    **{kind: (Role[kind.upper()],) for kind in KINDS},
    "annotation": (Role.ANNOTATION, Role.GPU_ANNOTATION),
    "copy": (Role.MEMCPY, Role.MEMSET),
}

_ROLES_WITH_WORK: Final = (*GPU_ROLES, Role.DEVICE)
"""Slices whose names say what a device did."""

_SHAPE_WORD = lazy_pattern(r"\d+(?:x\d+)+")
"""A word that shapes are compared with."""

_PLAIN_TEXT = lazy_pattern(r"[\w.,:;\[\](){}=+*#@!?|-]+", re.ASCII)
"""Text that JSON has only one way to write."""

_MAX_STREAMS_LISTED: Final = 8
_MAX_STEP_DIGITS: Final = 18  # of a number that a column can hold


NameTexts = dict[tuple[str, bool], list[str]]
"""What each name says, by field, as written or in lower case; as many texts as
`trace.names`."""


@memo()
def collect_name_texts(trace: Trace) -> NameTexts:
    """Return for each name of the trace the texts that a search looks at, by field.

    E.g. the field `dtype` has the element types that a kernel name contains. The name
    of every kernel is decoded for it. The field "" has the texts of all fields
    together.

    Returns:
        The texts of all names by (field, False), and in lower case by (field,
        True).
    """
    is_of_gpu = np.zeros(len(trace.names), dtype=np.bool_)
    is_of_gpu[trace.name[trace.gpu_rows]] = True
    kernels = []
    for name, is_kernel in zip(trace.names, is_of_gpu.tolist(), strict=True):
        kernels.append(decode(name) if is_kernel else None)

    texts_by_field = {"name": list(trace.names)}
    for field, text_of in FROM_NAME.items():
        texts = [text_of(kernel) if kernel else "" for kernel in kernels]
        texts_by_field[field] = texts
    texts_of_names = zip(*texts_by_field.values(), strict=True)
    texts_by_field[""] = ["\n".join(texts) for texts in texts_of_names]

    name_texts: NameTexts = {}
    for field, texts in texts_by_field.items():
        name_texts[field, False] = texts
        name_texts[field, True] = [text.lower() for text in texts]
    return name_texts


def search(trace: Trace, texts: NameTexts, query: Query) -> Rows:
    """Find the rows for which a query holds, apart from its terms about args.

    Returns:
        The rows in time order.

    Raises:
        WrongQueryError: If a pattern takes too long.
    """
    hits = [_find_rows(trace, texts, terms) for terms in query.alternatives]
    return _unite_rows(trace, hits)


def _find_rows(trace: Trace, texts: NameTexts, terms: Sequence[Term]) -> Rows:
    """Return the rows for which all terms of an alternative hold, ascending.

    Terms about args are ignored, since args are not in memory.

    Args:
        trace: The trace.
        texts: What the names of the trace say, by field.
        terms: The terms, each of which may be excluded (`-term`).

    Raises:
        WrongQueryError: A pattern takes too long.
    """
    # Terms about names are tested once for each name.
    is_wanted_name = np.ones(len(trace.names), dtype=np.bool_)
    for term in terms:
        if isinstance(term, Pattern):
            is_wanted_name &= match_names(term.text, trace.names) != term.excluded
        elif isinstance(term, Word) and (
            not term.field or term.field in FIELDS_OF_NAMES
        ):
            has_word = _mark_names_with_term(trace, texts, term)
            is_wanted_name &= has_word != term.excluded
    rows = np.flatnonzero(is_wanted_name[trace.name[: trace.recorded()]])

    # Terms about rows are tested only for the rows that are left.
    for term in terms:
        if isinstance(term, Bound):
            rows = rows[_mark_beyond_bound(trace, rows, term) != term.excluded]
        elif isinstance(term, Word) and term.field in _TESTS_OF_ROWS:
            test = _TESTS_OF_ROWS[term.field]
            rows = rows[test(trace, rows, term) != term.excluded]
    return rows


def _mark_beyond_bound(trace: Trace, rows: Rows, bound: Bound) -> Flags:
    """Mark the rows that exceed a bound, or stay below it, as the bound says."""
    if bound.field == "dur":
        times_ns = trace.dur[rows]
    else:
        times_ns = trace.start[rows] - trace.begin_ns
    return times_ns > bound.value if bound.above else times_ns < bound.value


def _unite_rows(trace: Trace, several_rows: Sequence[Rows]) -> Rows:
    """Return the union of several arrays of rows, in time order."""
    if not several_rows:
        return np.empty(0, dtype=np.intp)
    return _sort_by_start(trace, distinct(np.concatenate(several_rows)))


def _search_in_turn(
    trace: Trace, searches: Sequence[Iterator[ArgsHits]]
) -> Iterator[ArgsHits]:
    """Search several alternatives of a query one after the other, and yield all hits so
    far.

    Args:
        trace: The trace.
        searches: For each alternative an iterator over its hits so far.

    Yields:
        The hits of all alternatives so far, and how much of the search in all of them
        is done. Nothing without alternatives.
    """
    no_rows = np.empty(0, dtype=np.intp)
    hits_before = no_rows
    hits = no_rows
    for index, one_search in enumerate(searches):
        for found in one_search:
            hits = _unite_rows(trace, [hits_before, found.rows])
            searched_share = (index + found.searched_share) / len(searches)
            yield ArgsHits(rows=hits, searched_share=searched_share)
        hits_before = hits


def search_args_for_words(
    trace: Trace, texts: NameTexts, query: Query, found_by_name: Rows
) -> Iterator[ArgsHits]:
    """Find rows that have some words of a query in their args instead of their name.

    E.g. `gemm 8192x768` finds a kernel with `gemm` in its name, whose op has an input
    of that shape in its args.

    Args:
        trace: The trace.
        texts: What the names of the trace say.
        query: The query.
        found_by_name: The rows that `search` found by their names alone; they are
            left out. So are Python frames, which have no args of interest.

    Yields:
        All hits so far, while the file is read; see `_search_stretches`.

    Raises:
        WrongQueryError: If a pattern takes too long.
    """
    is_searched = trace.role != Role.PYTHON
    is_searched[found_by_name] = False

    searches = []
    for terms in query.alternatives:
        # Without such words, the names have decided already.
        if list_plain_words(terms):
            searches.append(_search_args_for_words(trace, texts, terms, is_searched))
    return _search_in_turn(trace, searches)


def _search_args_for_words(
    trace: Trace, texts: NameTexts, terms: Sequence[Term], is_searched: Flags
) -> Iterator[ArgsHits]:
    """Find rows for one alternative of a query, whose plain words may be in args.

    Args:
        trace: The trace.
        texts: What the names of the trace say, by field.
        terms: The terms of the alternative. Those that are no plain words must hold by
            the name, or by the row itself.
        is_searched: A flag for each row of the trace: whether it may be a hit.

    Returns:
        All hits so far, while the file is read; see `_search_stretches`.
    """
    words = list_plain_words(terms)
    other_terms = [term for term in terms if term not in words]
    rows = _find_rows(trace, texts, other_terms)
    rows = _sort_by_start(trace, rows[is_searched[rows]])

    is_in_name = []
    for word in words:
        names_with_word = _mark_names_with_term(trace, texts, word)
        is_in_name.append(names_with_word[trace.name[rows]])
    return _search_stretches(trace, rows, ARGS, words, is_in_name)


def search_in_args(trace: Trace, texts: NameTexts, query: Query) -> Iterator[ArgsHits]:
    """Find the rows for which a query with terms about args holds, as the file is read.

    Args:
        trace: The trace.
        texts: What the names of the trace say, by field.
        query: The query.

    Yields:
        All hits so far, and the share of the file that was searched.

    Raises:
        WrongQueryError: A pattern takes too long.
    """
    searches = []
    for terms in query.alternatives:
        searches.append(_search_args_for_terms(trace, texts, terms))
    return _search_in_turn(trace, searches)


def _search_args_for_terms(
    trace: Trace, texts: NameTexts, terms: Sequence[Term]
) -> Iterator[ArgsHits]:
    """Find the rows for which one alternative of a query holds, with terms about args.

    Args:
        trace: The trace.
        texts: What the names of the trace say, by field.
        terms: The terms of the alternative.

    Returns:
        All hits so far, while the file is read; all at once if no term is about args.
    """
    rows = _sort_by_start(trace, _find_rows(trace, texts, terms))
    terms_about_args = []
    for term in terms:
        if isinstance(term, Word) and term.field in FIELDS_OF_ARGS:
            terms_about_args.append(term)
    if not terms_about_args:
        return iter([ArgsHits(rows=rows, searched_share=1.0)])

    asks_for_shapes_only = all(term.field == "shape" for term in terms_about_args)
    args = (_SHAPES_ARG,) if asks_for_shapes_only else ARGS
    holds_so_far = [np.zeros(len(rows), np.bool_) for _ in terms_about_args]
    return _search_stretches(trace, rows, args, terms_about_args, holds_so_far)


def _search_stretches(
    trace: Trace,
    rows: Rows,
    names: tuple[str, ...],
    terms: Sequence[Word],
    holds: Sequence[Flags],
) -> Iterator[ArgsHits]:
    """Yield the rows for which all terms hold, while the file is read part by part.

    A term holds if it is found in the args of the row or of its op.

    Args:
        trace: The trace.
        rows: The rows to search.
        names: The names of the args to look into.
        terms: The terms.
        holds: For each term a flag per row: whether it holds by the name already.
            These flags are changed in place.

    Yields:
        All hits so far, in the order of `rows`, and the share of the parts that
        was searched.
    """
    if not len(rows):
        yield ArgsHits(rows=rows, searched_share=1.0)
        return

    locations = _locate_args(trace, rows)
    last_stretch = locations.last_stretch
    stretches = locations.stretches
    for searched, stretch in enumerate(stretches, start=1):
        # Most stretches are skipped without reading their events.
        if _may_occur_in_stretch(trace, stretch, terms):
            _add_hits_in_args(trace, locations, stretch, names, terms, holds)

        is_hit = last_stretch <= stretch  # all args of the row were searched
        for term, holds_for_rows in zip(terms, holds, strict=True):
            is_hit = is_hit & (holds_for_rows != term.excluded)
        yield ArgsHits(rows=rows[is_hit], searched_share=searched / len(stretches))


class _ArgsLocations(NamedTuple):
    """Where in the file the args of some rows and of their ops are.

    There is one entry per row. The op of a row without one is the row itself.
    """

    event_of_row: Int64s  # the index of the event in the file, as in Trace.order
    event_of_op: Int64s
    stretch_of_row: Rows  # the index of the stretch of the file that holds the event
    stretch_of_op: Rows

    @property
    def last_stretch(self) -> Rows:
        """For each row the stretch after which its args and those of its op are read."""
        return np.maximum(self.stretch_of_op, self.stretch_of_row)

    @property
    def stretches(self) -> list[int]:
        """The stretches that hold any of these args, ascending."""
        both = np.concatenate([self.stretch_of_op, self.stretch_of_row])
        stretches: list[int] = distinct(both).tolist()
        return stretches


def _locate_args(trace: Trace, rows: Rows) -> _ArgsLocations:
    """Find in which parts of the file the args of some rows and of their ops are.

    For a row without an op, the place of the row itself stands in. The parts
    (stretches) are read one at a time.
    """
    events_of_stretch = [stretch.events for stretch in trace.elements.stretches]
    first_event_of_stretch = prefix_sums(np.array(events_of_stretch, dtype=np.int64))
    op = trace.op[rows]
    op_or_row = np.where(op != NO_ROW, op, rows)
    event_of_row = trace.order[rows]
    event_of_op = trace.order[op_or_row]
    return _ArgsLocations(
        event_of_row=event_of_row,
        event_of_op=event_of_op,
        stretch_of_row=last_at_or_before(first_event_of_stretch, event_of_row),
        stretch_of_op=last_at_or_before(first_event_of_stretch, event_of_op),
    )


def _add_hits_in_args(
    trace: Trace,
    locations: _ArgsLocations,
    stretch: int,
    names: tuple[str, ...],
    terms: Sequence[Word],
    holds: Sequence[Flags],
) -> None:
    """Search the args of one stretch (part) of the file for some terms of a query.

    A term is found for a row if it is in the args of the row itself or of its op. The
    two may lie in different stretches; only those in this one are searched.

    Args:
        trace: The trace.
        locations: Where the args of the rows and of their ops are.
        stretch: The index of the stretch.
        names: The args to look into.
        terms: The terms.
        holds: For each term one flag per row: whether the term was found so far. The
            flags of rows for which it is found here are set, in place.
    """
    # Indices in `rows`: of those whose op is in this stretch, and of those that are.
    with_op_here = np.flatnonzero(locations.stretch_of_op == stretch)
    being_here = np.flatnonzero(locations.stretch_of_row == stretch)
    events_here = np.concatenate(
        (locations.event_of_op[with_op_here], locations.event_of_row[being_here])
    )

    # Read the args of each event only once, even if it is the op of several rows.
    distinct_events, index_of_event = np.unique(events_here, return_inverse=True)
    args = arguments(trace.elements, distinct_events, names)
    args_of_event = args.number[index_of_event]
    for term, holds_for_rows in zip(terms, holds, strict=True):
        is_in_args = [_is_in_args(term, texts) for texts in args.distinct]
        is_in_args.append(False)  # of events without args, whose number is -1
        is_in_event = np.array(is_in_args)[args_of_event]
        is_in_op, is_in_row = np.split(is_in_event, [len(with_op_here)])
        holds_for_rows[with_op_here] |= is_in_op
        holds_for_rows[being_here] |= is_in_row


def _is_in_args(term: Word, texts: tuple[bytes, ...]) -> bool:
    """Return whether args contain the text of a term, or a shape if the term is one.

    Args:
        term: The term, such as `8192x768`.
        texts: The args as the file has them, the shapes of inputs first.
    """
    shapes = texts[0]
    if term.field == "shape":
        return _has_shape(shapes, term.text)
    may_be_shape = not term.field and _SHAPE_WORD.fullmatch(term.text)
    if may_be_shape and _has_shape(shapes, term.text):
        return True

    text = b"\n".join(texts).decode("utf-8", "replace")
    if term.ignores_case:
        text = text.lower()
    return term.text in text or term.text in text.replace(" ", "")


def _has_shape(shapes: bytes, shape: str) -> bool:
    """Return whether some shape has certain sizes, one right after the other.

    E.g. `2x3` is found in [[2, 3]] and in [[8, 2, 3, 4], []], but not in [[12, 3]].

    Args:
        shapes: The shapes as the file has them.
        shape: The sizes, such as `2x3`.
    """
    sizes = shape.lower().replace("x", ",").replace(" ", "")
    text = shapes.decode("utf-8", "replace").replace(" ", "")
    # The sizes may begin and end the shape, or stand between others.
    for before in ("[", ","):
        for after in ("]", ","):
            if f"{before}{sizes}{after}" in text:
                return True
    return False


def _sort_by_start(trace: Trace, rows: Rows) -> Rows:
    """Sort rows by start; of equal starts, they keep their order."""
    return rows[np.argsort(trace.start[rows], kind="stable")]


def _mark_names_with_term(trace: Trace, texts: NameTexts, term: Word) -> Flags:
    """Mark the names for which a term holds; one flag per name of the trace."""
    holds = _mark_names_containing(texts, term)
    if term.field in ("", "family") and term.text in LEGEND_ONLY_KINDS:
        holds |= _mark_names_of_kind(trace, term.text)
    return holds


def _mark_names_of_kind(trace: Trace, kind: str) -> Flags:
    """Mark the names of GPU events, or of other devices, that do work of a kind.

    Returns a flag for each name of the trace.
    """
    is_of_kind = [kind in kinds for kinds in _classify_names(trace)]
    return np.array(is_of_kind, dtype=np.bool_)


@memo()
def _classify_names(trace: Trace) -> list[frozenset[str]]:
    """Return the kinds of each name of the trace; none for names of CPU slices only."""
    is_of_device = np.zeros(len(trace.names), dtype=np.bool_)
    is_of_device[trace.name[trace.rows_of(*_ROLES_WITH_WORK)]] = True
    kinds_of_names: list[frozenset[str]] = []
    for name, does_work in zip(trace.names, is_of_device.tolist(), strict=True):
        kinds_of_names.append(searched_kinds(name) if does_work else frozenset())
    return kinds_of_names


def _mark_names_containing(texts: NameTexts, term: Word) -> Flags:
    """Mark the names for which a word of a query is found in the text of its field.

    A whole word (`op=mm`) must equal the name, or one word of another field. Otherwise
    any part of the text will do.

    Returns:
        A flag for each name of the trace.
    """
    name_texts = texts[term.field, term.ignores_case]
    if not term.whole:
        holds = [term.text in text for text in name_texts]
    elif term.field == "name":
        holds = [term.text == text for text in name_texts]
    else:  # the texts of other fields have several words
        holds = [term.text in text.split() for text in name_texts]
    return np.array(holds, dtype=np.bool_)


def _mark_rows_in_op(trace: Trace, rows: Rows, term: Word) -> Flags:
    """Mark the rows with an op around them whose name the term finds. Returns a flag
    for each of `rows`."""
    op = trace.op[rows]
    has_op = op != NO_ROW
    is_wanted_name = trace.named(term.holds)
    return np.asarray(has_op & is_wanted_name[trace.name[op]])


def _mark_rows_on_stream(trace: Trace, rows: Rows, term: Word) -> Flags:
    """Mark the rows on a stream with this number."""
    is_stream = []
    for track in trace.tracks:
        is_stream.append(track.layer in GPU_LAYERS and str(track.tid) == term.text)
    return _mark_rows_on_tracks(trace, rows, is_stream)


def _mark_rows_on_thread(trace: Trace, rows: Rows, term: Word) -> Flags:
    """Mark the rows on a thread, or a stream of a GPU, with this number or name.

    If there is none, a part of the name is enough, unless the term asks for whole
    words.
    """
    is_thread = [term.text in (str(track.tid), track.label) for track in trace.tracks]
    if not any(is_thread) and not term.whole:
        text = term.text.lower()
        is_thread = [text in track.label.lower() for track in trace.tracks]
    return _mark_rows_on_tracks(trace, rows, is_thread)


def _mark_rows_on_tracks(trace: Trace, rows: Rows, is_wanted: Sequence[bool]) -> Flags:
    """Mark the rows on flagged tracks; `is_wanted` has one flag per track.

    Returns a flag for each of `rows`.
    """
    is_wanted_track = np.array(is_wanted, dtype=np.bool_)
    return is_wanted_track[trace.track[rows]]


def _mark_rows_of_kind(trace: Trace, rows: Rows, term: Word) -> Flags:
    """Mark the rows of a kind that a query names.

    The kind is that of a slice, such as `kernel` or `op`, or that of the work of a
    device, such as `gemm`.

    Args:
        trace: The trace.
        rows: The rows to test.
        term: The term, whose text is the kind in any case.
    """
    kind = term.text.lower()
    role = trace.role[rows]
    holds: Flags = np.isin(role, _ROLES_OF_KINDS.get(kind, ()))
    if kind in SEARCHED_KINDS:
        does_work = np.isin(role, _ROLES_WITH_WORK)
        holds |= does_work & _mark_names_of_kind(trace, kind)[trace.name[rows]]
    return holds


def _mark_rows_in_step(trace: Trace, rows: Rows, term: Word) -> Flags:
    """Mark the CPU slices that start in a step, and the GPU events that the step
    launched.

    Args:
        trace: The trace.
        rows: The rows to test.
        term: The term, whose text is the number of the step. No row is marked if
            there is no such step.
    """
    steps = steps_of(trace)
    step = steps.place(parse_step_number(term.text))
    has_step = step >= 0
    if not has_step:
        return np.zeros(len(rows), dtype=np.bool_)
    is_launched = np.isin(rows, launched_in_steps(trace)[step])
    starts_inside = steps.at(trace.start[rows]) == step
    is_gpu = np.isin(rows, trace.gpu_rows)
    return np.where(is_gpu, is_launched, starts_inside)


def parse_step_number(text: str) -> int:
    """Return the number of a step; -1 if the text is none."""
    is_number = text.isdecimal() and len(text) <= _MAX_STEP_DIGITS
    return int(text) if is_number else -1


_TESTS_OF_ROWS: Final[dict[str, Callable[[Trace, Rows, Word], Flags]]] = {
    "op": _mark_rows_in_op,
    "stream": _mark_rows_on_stream,
    "thread": _mark_rows_on_thread,
    "kind": _mark_rows_of_kind,
    "step": _mark_rows_in_step,
}
"""For which rows a word holds, by its field."""


def _join_distinct_words(*words: str | None) -> str:
    """Join words with blanks, each word once. None and "" are left out."""
    return " ".join(dict.fromkeys(word for word in words if word))


def _family_text(kernel: KernelName) -> str:
    """Return what `family:` finds of a kernel: its op, library and collective."""
    words = (kernel.op, kernel.family, kernel.collective)
    return " ".join(word for word in words if word)


def _types_text(kernel: KernelName) -> str:
    """Return the text in which `dtype:` searches for a kernel: the names of all of its
    element types, each once."""
    return _join_distinct_words(
        kernel.dtype,
        kernel.dtype_a,
        kernel.dtype_b,
        kernel.dtype_acc,
        kernel.dtype_out,
    )


def _tile_text(kernel: KernelName) -> str:
    """Return what `tile:` finds of a kernel, such as `128x128x64`; "" if unknown."""
    return tile_words(kernel.tile_m, kernel.tile_n, kernel.tile_k) or ""


def _target_text(kernel: KernelName) -> str:
    """Return what `arch:` finds of a kernel: the architecture that it is made for."""
    words = (kernel.arch, kernel.arch_name)
    return " ".join(word for word in words if word)


FROM_NAME: Final[dict[str, Callable[[KernelName], str]]] = {
    "library": lambda kernel: kernel.family,
    "family": _family_text,
    "dtype": _types_text,
    "tile": _tile_text,
    "arch": _target_text,
    "short": lambda kernel: kernel.short,
}
"""What a name says, by field; several words are divided by blanks."""


def _may_occur_in_stretch(
    trace: Trace, stretch_index: int, words: Sequence[Word]
) -> bool:
    """Return whether one of some words may occur in one stretch (part) of the file.

    It looks for their bytes, which is much faster than reading the events. Blanks do
    not matter. Only the answer False is certain: the bytes may belong to anything.

    Args:
        trace: The trace.
        stretch_index: The index of the stretch.
        words: The words. One that JSON could write in several ways may always
            occur.
    """
    texts = [word.text.replace(" ", "") for word in words]
    if not all(_PLAIN_TEXT.fullmatch(text) for text in texts):
        return True

    stretch = trace.elements.stretches[stretch_index]
    try:
        stretch_bytes = bytes(trace.elements.text.part(stretch.start, stretch.end))
    except (OSError, TraceError):
        return True  # reading its events will say what is wrong with the file

    as_written = stretch_bytes.replace(b" ", b"")
    lower = as_written.lower()
    for word, text in zip(words, texts, strict=True):
        # a shape such as `2x3` is written as [2, 3] in the file
        as_shape = text.lower().replace("x", ",")
        searched_bytes = lower if word.ignores_case else as_written
        if as_shape.encode() in lower or text.encode() in searched_bytes:
            return True
    return False


def explain_missing_parts(trace: Trace, query: Query) -> str:
    """Explain what a query asks for that this trace does not have; "" for nothing."""
    for term in query.terms:
        if isinstance(term, Word) and not term.excluded:
            sentence = _explain_missing_term(trace, term)
            if sentence:
                return sentence
    return explain_misread_word(query)


def _explain_missing_term(trace: Trace, term: Word) -> str:
    """Explain that a term asks for a step or stream that the trace does not have.

    E.g. "the streams of this trace are 7, 20" for `stream:8`; "" if it has it, and for
    other terms.
    """
    if term.field == "stream":
        return _explain_missing_stream(trace, term.text)
    if term.field == "step":
        steps = steps_of(trace)
        has_step = steps.place(parse_step_number(term.text)) >= 0
        return "" if has_step else f"this trace has {steps.known}"
    return ""


def explain_missing_kernels(trace: Trace) -> str:
    """Say in one sentence why a trace has no kernels, and what it has instead. It must
    have no kernel."""
    events = len(trace.gpu_rows)
    if events == 1:
        return "no kernels in this trace: its GPU event is not a kernel"
    if events:
        return (
            f"no kernels in this trace: its {count(events)} GPU events are not kernels"
        )
    if len(trace.rows_of(Role.DEVICE)):
        return "no kernels in this trace: its device work is not recorded as kernels"
    return (
        "no kernels in this trace: no GPU events were recorded (fusetui ops lists "
        "the CPU ops)"
    )


def _explain_missing_stream(trace: Trace, text: str) -> str:
    """Say which streams the trace has, if none of them has the number in a query.

    Returns:
        E.g. "the streams of this trace are 7, 20"; "" if a stream has this
        number.
    """
    streams = {str(track.tid) for track in trace.tracks if track.layer in GPU_LAYERS}
    if text in streams:
        return ""
    if not streams:
        return "this trace has no streams"
    if len(streams) == 1:
        return f"the only stream of this trace is {streams.pop()}"
    # Shorter numbers are smaller; tids need not be numbers.
    ascending = sorted(streams, key=lambda tid: (len(tid), tid))
    listed = ", ".join(ascending[:_MAX_STREAMS_LISTED])
    more = ", ..." if len(streams) > _MAX_STREAMS_LISTED else ""
    return f"the streams of this trace are {listed}{more}"
