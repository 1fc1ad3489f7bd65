"""Keeps marks, folds, pinned and hidden lanes and the last window of a trace between
runs, by the content of the file, so that a copy or a renamed file has them too."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from fusetui.text.printable import printable
from fusetui.trace.new_file import replaced_file
from fusetui.tui.layout.lanes import ALL, FOLDED, Arrangement, Lane
from fusetui.tui.layout.view import Side, View, first_view
from fusetui.tui.state.session import Bookmark
from fusetui.tui.state.state import State, told

HASHED_BYTES = 1 << 16  # at both ends of a file; with its size they identify it
MAX_FILES = 500  # of more, those that were written last are kept
MAX_FILE_BYTES = 1 << 20  # of a file of ours
AGAIN = "Restored marks and zoom from last session", "whole show the whole trace"


class KeptLanes(msgspec.Struct, frozen=True):
    """Lanes by their keys, as an Arrangement has them by number."""

    hidden: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    by_busy: bool = False
    families: bool = False


class KeptView(msgspec.Struct, frozen=True):
    """Of one trace."""

    marks: dict[str, Bookmark] = {}
    # by lane: how many of its lines the user wants to see at most
    folds: dict[str, int] = {}
    window: tuple[int, int] | None = None  # ns of the file; None: the whole trace
    lanes: KeptLanes | None = None  # None: as at first


def read_kept(path: str) -> tuple[KeptView, str]:
    """What was kept of a file, nothing where that cannot be read; and what tells the
    content of the file from others, "" where nothing is kept of it."""
    kept = KeptView()
    identity = ""
    with suppress(OSError, RuntimeError, msgspec.DecodeError, UnicodeDecodeError):
        file = _kept_file(path)
        if file is not None:
            identity = file.stem
            if file.stat().st_size <= MAX_FILE_BYTES:
                kept = msgspec.json.decode(file.read_bytes(), type=KeptView)
    return kept, identity


def keep(state: State) -> str:
    """Writes what is kept of the only trace, but not in the tour; a sentence if that
    fails."""
    if state.tour is not None or not _has_one_whole_trace(state):
        return ""
    kept = kept_of(state)
    try:
        _write_kept(state, kept)
    except (OSError, RuntimeError) as error:
        if kept == KeptView():
            return ""
        why = getattr(error, "strerror", None) or str(error)
        return f"Marks and window were not kept: {why.lower()}."
    return ""


def _has_one_whole_trace(state: State) -> bool:
    return len(state.sides) == 1 and not state.side.trace.report.prefix


def _write_kept(state: State, kept: KeptView) -> None:
    """Writes what is kept of the only trace, or removes its file where that is
    nothing. Raises OSError or RuntimeError."""
    file = _kept_file(state.paths[0])
    if file is None:
        return
    if state.kept_as not in ("", file.stem):
        return  # the file is not the one that was opened
    if kept != KeptView():
        _write(file, msgspec.json.encode(kept))
    elif file.exists():
        file.unlink()


def kept_of(state: State) -> KeptView:
    """What is kept of the active side: nothing of what is as it was at first."""
    side = state.side
    view = state.view
    first = first_view(side)
    first_folds = state.fits[0] if state.fits else first.folds
    is_whole = view.begin == first.begin and view.end == first.end
    window = (view.begin + side.origin, view.end + side.origin)
    is_arranged = view.arranged != first.arranged
    return KeptView(
        marks=dict(state.session.bookmarks),
        folds=_kept_folds(side, view, first_folds),
        window=None if is_whole else window,
        lanes=_kept_lanes(side, view.arranged) if is_arranged else None,
    )


def _kept_folds(side: Side, view: View, first_folds: tuple[int, ...]) -> dict[str, int]:
    """The folds that are others than at first, by the keys of their lanes."""
    folds = {}
    for lane, fold, first_fold in zip(side.lanes, view.folds, first_folds, strict=True):
        if fold != first_fold:
            folds[_key(lane)] = fold
    return folds


def _kept_lanes(side: Side, arranged: Arrangement) -> KeptLanes:
    """An arrangement with the keys of its lanes."""
    hidden = [_key(side.lanes[index]) for index in arranged.hidden]
    pinned = [_key(side.lanes[index]) for index in arranged.pinned]
    return KeptLanes(
        hidden=tuple(sorted(hidden)),
        pinned=tuple(pinned),
        by_busy=arranged.by_busy,
        families=arranged.families,
    )


def restored(state: State, kept: KeptView) -> State:
    """A trace just opened as it was left; what is set already stays, and the tour
    begins anew."""
    is_first_view = len(state.sides) == 1 and not state.session.past
    if state.tour is not None or not is_first_view or kept == KeptView():
        return state
    side = state.side
    bookmarks = {**_sound_marks(side, kept), **state.session.bookmarks}
    views = (_restored_view(side, state.view, kept),)
    session = replace(state.session, views=views, bookmarks=bookmarks)
    return told(replace(state, session=session), *AGAIN)


def _restored_view(side: Side, view: View, kept: KeptView) -> View:
    """The folds, the arrangement of lanes and the window that were kept; none that a
    damaged file has and the trace cannot have."""
    folds = []
    for lane, fold in zip(side.lanes, view.folds, strict=True):
        kept_fold = kept.folds.get(_key(lane), fold)
        folds.append(min(max(kept_fold, FOLDED), ALL))
    view = replace(view, folds=tuple(folds))
    if kept.lanes:
        view = replace(view, arranged=_arrangement(side, kept.lanes))
    if kept.window and _is_inside(side, *kept.window):
        begin, end = kept.window
        view = replace(view, begin=begin - side.origin, end=end - side.origin)
    return view


def _sound_marks(side: Side, kept: KeptView) -> dict[str, Bookmark]:
    """The marks that were kept, by their letters; none that a damaged file has and the
    trace cannot have."""
    marks = {}
    for letter, mark in kept.marks.items():
        is_letter = len(letter) == 1 and letter.isascii() and letter.isalpha()
        if is_letter and _is_inside(side, mark.begin, mark.end):
            marks[letter] = replace(mark, note=printable(mark.note), side=0)
    return marks


def _arrangement(side: Side, kept: KeptLanes) -> Arrangement:
    """Lanes that are not there any more are left out; at least one is shown."""
    index_of = {_key(lane): index for index, lane in enumerate(side.lanes)}
    pinned = dict.fromkeys(index_of[key] for key in kept.pinned if key in index_of)
    hidden = {index_of[key] for key in kept.hidden if key in index_of}
    hidden -= set(pinned)
    hides_all = len(hidden) == len(side.lanes)
    return Arrangement(
        hidden=side.quiet if hides_all else frozenset(hidden),
        pinned=tuple(pinned),
        by_busy=kept.by_busy,
        families=kept.families,
    )


def _is_inside(side: Side, begin: int, end: int) -> bool:
    """Whether this is a window that the trace can have, in ns of the file: at most as
    long as the trace outside of it, and over some of it. A file of ours may be
    damaged."""
    first = side.trace.begin_ns
    last = side.trace.end_ns
    span = max(1, last - first)
    is_near = first - span <= begin < end <= last + span
    overlaps = begin <= last and end >= first
    return is_near and overlaps


def _key(lane: Lane) -> str:
    """What identifies a lane in a file of ours."""
    layer, pid, tid = lane.key
    return f"{layer} {pid} {tid}"


def _kept_file(path: str) -> Path | None:
    """Our file about a trace, named by what the trace begins and ends with; None where
    nothing is kept: of what is no file, or by request. Raises OSError and
    RuntimeError."""
    # not at the start
    from fusetui.tui.kept_folder import OF_TRACES, kept_folder

    folder = kept_folder(OF_TRACES)
    if folder is None or not Path(path).is_file():
        return None
    return folder / f"{_identity(path)}.json"


def _identity(path: str) -> str:
    """A hash of the size of a file and of HASHED_BYTES at both of its ends."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        content = hashlib.sha256(str(size).encode())
        content.update(file.read(HASHED_BYTES))
        file.seek(max(0, size - HASHED_BYTES))
        content.update(file.read(HASHED_BYTES))
    return content.hexdigest()[:32]


def _write(kept_file: Path, content: bytes) -> None:
    """Others see the old file or the complete new one; of too many files the oldest
    go."""
    folder = kept_file.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replaced_file(kept_file) as file:
        file.write(content)
    ours = sorted(
        folder.glob("[0-9a-f]*.json"), key=lambda path: path.stat().st_mtime_ns
    )
    for old in ours[:-MAX_FILES]:
        old.unlink(missing_ok=True)
