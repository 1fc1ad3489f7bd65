"""What is kept of a trace between two runs: marks, folds, pinned and hidden lanes and
the last window, in the user's state folder, by the content of the file, so that a copy
or a renamed file has them too."""

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
from fusetui.tui.layout.view import Side, first_view
from fusetui.tui.state.session import Bookmark
from fusetui.tui.state.state import State, told

PLACE = "FUSETUI_KEPT"  # names another folder, or is `off`
PART = 1 << 16  # bytes at both ends of a file that tell it from others, with its size
MOST = 500  # files; of more, those that were written last are kept
LONGEST = 1 << 20  # bytes of a file of ours
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
    kept, name = KeptView(), ""
    with suppress(OSError, RuntimeError, msgspec.DecodeError, UnicodeDecodeError):
        if place := _place(path):
            name = place.stem
            if place.stat().st_size <= LONGEST:
                kept = msgspec.json.decode(place.read_bytes(), type=KeptView)
    return kept, name


def keep(state: State) -> str:
    """Writes what is kept of the only trace, but not in the tour; a sentence if that
    fails."""
    if (
        state.tour is not None
        or len(state.sides) != 1
        or state.side.trace.report.prefix
    ):
        return ""
    kept = kept_of(state)
    try:
        place = _place(state.paths[0])
        if place is None or state.kept_as not in ("", place.stem):
            return ""  # the file is not the one that was opened
        if kept != KeptView():
            _write(place, msgspec.json.encode(kept))
        elif place.exists():
            place.unlink()
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return (
            f"Marks and window were not kept: {why.lower()}."
            if kept != KeptView()
            else ""
        )
    return ""


def kept_of(state: State) -> KeptView:
    side, view = state.side, state.view
    first = first_view(side)
    fits = state.fits[0] if state.fits else first.folds
    window = (view.begin + side.origin, view.end + side.origin)
    is_whole = (view.begin, view.end) == (first.begin, first.end)
    keys, now = [_key(lane) for lane in side.lanes], view.arranged
    hidden, pinned = (tuple(keys[n] for n in one) for one in (now.hidden, now.pinned))
    lanes = KeptLanes(tuple(sorted(hidden)), pinned, now.by_busy, now.families)
    folds = zip(keys, view.folds, fits, strict=True)
    return KeptView(
        marks=dict(state.session.bookmarks),
        folds={key: fold for key, fold, fit in folds if fold != fit},
        window=None if is_whole else window,
        lanes=None if now == first.arranged else lanes,
    )


def restored(state: State, kept: KeptView) -> State:
    """A trace just opened as it was left; what is set already stays, and the tour
    begins anew."""
    if (
        state.tour is not None
        or len(state.sides) != 1
        or kept == KeptView()
        or state.session.past
    ):
        return state
    side, session = state.side, state.session
    marks = {
        letter: replace(mark, note=printable(mark.note), side=0)
        for letter, mark in kept.marks.items()
        if len(letter) == 1 and letter.isascii() and letter.isalpha()
        if _is_inside(side, mark.begin, mark.end)
    }
    own = zip(side.lanes, state.view.folds, strict=True)
    folds = (
        min(max(kept.folds.get(_key(lane), fold), FOLDED), ALL) for lane, fold in own
    )
    view = replace(state.view, folds=tuple(folds))
    if kept.lanes:
        view = replace(view, arranged=_arrangement(side, kept.lanes))
    if kept.window and _is_inside(side, *kept.window):
        begin, end = kept.window
        view = replace(view, begin=begin - side.origin, end=end - side.origin)
    session = replace(session, views=(view,), bookmarks={**marks, **session.bookmarks})
    return told(replace(state, session=session), *AGAIN)


def _arrangement(side: Side, kept: KeptLanes) -> Arrangement:
    """Lanes that are not there any more are left out; at least one is shown."""
    number = {_key(lane): n for n, lane in enumerate(side.lanes)}
    pinned = tuple(dict.fromkeys(number[key] for key in kept.pinned if key in number))
    hidden = frozenset(number[key] for key in kept.hidden if key in number) - set(
        pinned
    )
    shown = hidden if len(hidden) < len(side.lanes) else side.quiet
    return Arrangement(shown, pinned, kept.by_busy, kept.families)


def _is_inside(side: Side, begin: int, end: int) -> bool:
    """Whether this is a window that the trace can have; a file of ours may be
    damaged."""
    first, last = side.trace.begin_ns, side.trace.end_ns
    span = max(1, last - first)
    return first - span <= begin < end <= last + span and begin <= last and end >= first


def _key(lane: Lane) -> str:
    layer, pid, tid = lane.key
    return f"{layer} {pid} {tid}"


def _place(path: str) -> Path | None:
    """The file of a trace, by what it begins and ends with; None where nothing is kept:
    of what is no file, or by request."""
    named = os.environ.get(PLACE, "")
    if named == "off" or not Path(path).is_file():
        return None
    from platformdirs import user_state_path

    folder = (
        Path(named) if named else user_state_path("fusetui", appauthor=False) / "traces"
    )
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        found = hashlib.sha256(str(size).encode())
        found.update(file.read(PART))
        file.seek(max(0, size - PART))
        found.update(file.read(PART))
    return folder / f"{found.hexdigest()[:32]}.json"


def _write(place: Path, content: bytes) -> None:
    """Others see the old file or the complete new one; of too many files the oldest
    go."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replaced_file(place) as file:
        file.write(content)
    ours = sorted(
        place.parent.glob("[0-9a-f]*.json"), key=lambda file: file.stat().st_mtime_ns
    )
    for old in ours[:-MOST]:
        old.unlink(missing_ok=True)
