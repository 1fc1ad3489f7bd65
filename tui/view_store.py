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
from fusetui.tui.layout.view import Side, View, make_first_view
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


def read_saved_view(path: str) -> tuple[KeptView, str]:
    """Return the view that was saved for a trace, and an identity of the file's
    content.

    The view is empty where nothing was saved or it cannot be read. The identity is ""
    where nothing can be saved for this path.
    """
    kept = KeptView()
    identity = ""
    with suppress(OSError, RuntimeError, msgspec.DecodeError, UnicodeDecodeError):
        file = _find_saved_file(path)
        if file is not None:
            identity = file.stem
            if file.stat().st_size <= MAX_FILE_BYTES:
                kept = msgspec.json.decode(file.read_bytes(), type=KeptView)
    return kept, identity


def keep(state: State) -> str:
    """Save the view of the only open trace for the next run. Nothing is saved during
    the tour. Return "", or a sentence if that fails."""
    if state.tour is not None or not _has_one_whole_trace(state):
        return ""
    kept = collect_view(state)
    try:
        _write_saved_view(state, kept)
    except (OSError, RuntimeError) as error:
        if kept == KeptView():
            return ""
        reason = getattr(error, "strerror", None) or str(error)
        return f"Marks and window were not kept: {reason.lower()}."
    return ""


def _has_one_whole_trace(state: State) -> bool:
    """Return whether exactly one trace is open and it was read to its end."""
    return len(state.sides) == 1 and not state.side.trace.report.prefix


def _write_saved_view(state: State, kept: KeptView) -> None:
    """Write the view of the only trace to its file, or remove the file where there is
    nothing to save. Raise OSError or RuntimeError."""
    file = _find_saved_file(state.paths[0])
    if file is None:
        return
    if state.kept_as not in ("", file.stem):
        return  # the file is not the one that was opened
    if kept != KeptView():
        _write_file(file, msgspec.json.encode(kept))
    elif file.exists():
        file.unlink()


def collect_view(state: State) -> KeptView:
    """Return what is saved of the active side: marks, and folds, window and lanes where
    they differ from the first ones."""
    side = state.side
    view = state.view
    first_shown = make_first_view(side)
    first_folds = state.fits[0] if state.fits else first_shown.folds
    is_whole = view.begin == first_shown.begin and view.end == first_shown.end
    shown_window = (view.begin + side.origin, view.end + side.origin)
    is_arranged = view.arranged != first_shown.arranged
    return KeptView(
        marks=dict(state.session.bookmarks),
        folds=_collect_folds(side, view, first_folds),
        window=None if is_whole else shown_window,
        lanes=_collect_lanes(side, view.arranged) if is_arranged else None,
    )


def _collect_folds(
    side: Side, view: View, first_folds: tuple[int, ...]
) -> dict[str, int]:
    """Return the folds of lanes that the user changed, by the keys of the lanes."""
    folds = {}
    for lane, fold, first_fold in zip(side.lanes, view.folds, first_folds, strict=True):
        if fold != first_fold:
            folds[_lane_key(lane)] = fold
    return folds


def _collect_lanes(side: Side, arranged: Arrangement) -> KeptLanes:
    """Return which lanes are hidden and pinned, and how lanes are sorted, by the keys
    of the lanes."""
    hidden = [_lane_key(side.lanes[index]) for index in arranged.hidden]
    pinned = [_lane_key(side.lanes[index]) for index in arranged.pinned]
    return KeptLanes(
        hidden=tuple(sorted(hidden)),
        pinned=tuple(pinned),
        by_busy=arranged.by_busy,
        families=arranged.families,
    )


def restore_view(state: State, kept: KeptView) -> State:
    """Return the state with the view that was saved for a trace just opened. What the
    user has set by now stays; during the tour nothing is restored."""
    is_first_view = len(state.sides) == 1 and not state.session.past
    if state.tour is not None or not is_first_view or kept == KeptView():
        return state
    side = state.side
    bookmarks = {**_keep_sound_marks(side, kept), **state.session.bookmarks}
    views = (_restore_side_view(side, state.view, kept),)
    session = replace(state.session, views=views, bookmarks=bookmarks)
    return told(replace(state, session=session), *AGAIN)


def _restore_side_view(side: Side, view: View, kept: KeptView) -> View:
    """Return the view of a side with the saved folds, lanes and window. Values that the
    trace cannot have, from a damaged file, are ignored."""
    restored_folds = []
    for lane, fold in zip(side.lanes, view.folds, strict=True):
        kept_fold = kept.folds.get(_lane_key(lane), fold)
        restored_folds.append(min(max(kept_fold, FOLDED), ALL))
    view = replace(view, folds=tuple(restored_folds))
    if kept.lanes:
        view = replace(view, arranged=_restore_arrangement(side, kept.lanes))
    if kept.window and _is_possible_window(side, *kept.window):
        begin, end = kept.window
        view = replace(view, begin=begin - side.origin, end=end - side.origin)
    return view


def _keep_sound_marks(side: Side, kept: KeptView) -> dict[str, Bookmark]:
    """Return the saved marks by their letters. Marks that the trace cannot have, from a
    damaged file, are left out."""
    marks = {}
    for letter, mark in kept.marks.items():
        is_letter = len(letter) == 1 and letter.isascii() and letter.isalpha()
        if is_letter and _is_possible_window(side, mark.begin, mark.end):
            marks[letter] = replace(mark, note=printable(mark.note), side=0)
    return marks


def _restore_arrangement(side: Side, kept: KeptLanes) -> Arrangement:
    """Return the saved arrangement of lanes. Lanes that no longer exist are left out,
    and at least one lane stays in sight."""
    lane_by_key = {_lane_key(lane): index for index, lane in enumerate(side.lanes)}
    pinned = dict.fromkeys(
        lane_by_key[key] for key in kept.pinned if key in lane_by_key
    )
    hidden = {lane_by_key[key] for key in kept.hidden if key in lane_by_key}
    hidden -= set(pinned)
    hides_all = len(hidden) == len(side.lanes)
    return Arrangement(
        hidden=side.quiet if hides_all else frozenset(hidden),
        pinned=tuple(pinned),
        by_busy=kept.by_busy,
        families=kept.families,
    )


def _is_possible_window(side: Side, begin: int, end: int) -> bool:
    """Return whether [begin, end) in ns of the file is a window that the trace can
    have.

    It must overlap the trace, and reach out of it by at most the length of the trace. A
    damaged file may have others.
    """
    begin_ns = side.trace.begin_ns
    end_ns = side.trace.end_ns
    span = max(1, end_ns - begin_ns)
    is_near = begin_ns - span <= begin < end <= end_ns + span
    overlaps = begin <= end_ns and end >= begin_ns
    return is_near and overlaps


def _lane_key(lane: Lane) -> str:
    """Return the text that identifies a lane in a saved file."""
    layer, pid, tid = lane.key
    return f"{layer} {pid} {tid}"


def _find_saved_file(path: str) -> Path | None:
    """Return the file in which views of this trace are saved, named by its content. It
    is None for what is no file, or where saving is turned off. Raise OSError or
    RuntimeError."""
    # not at the start
    from fusetui.tui.kept_folder import OF_TRACES, find_kept_folder

    folder = find_kept_folder(OF_TRACES)
    if folder is None or not Path(path).is_file():
        return None
    return folder / f"{_hash_file(path)}.json"


def _hash_file(path: str) -> str:
    """Return a hash of the size of a file and of HASHED_BYTES at both of its ends, as
    32 hex digits."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        content = hashlib.sha256(str(size).encode())
        content.update(file.read(HASHED_BYTES))
        file.seek(max(0, size - HASHED_BYTES))
        content.update(file.read(HASHED_BYTES))
    # 128 bits are enough to tell files apart
    return content.hexdigest()[:32]


def _write_file(kept_file: Path, content: bytes) -> None:
    """Write a saved file so that other processes see the old or the whole new content.
    Of more than MAX_FILES files, the oldest are removed."""
    folder = kept_file.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replaced_file(kept_file) as file:
        file.write(content)
    saved_files = sorted(
        folder.glob("[0-9a-f]*.json"), key=lambda path: path.stat().st_mtime_ns
    )
    for old in saved_files[:-MAX_FILES]:
        old.unlink(missing_ok=True)
