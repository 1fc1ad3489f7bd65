"""The changes that a user may ask for, such as `kernel:gemm x0.5` or
`loader:workers=4`."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from fusetui import Error
from fusetui.text.figures import parse_time
from fusetui.text.patterns import lazy_pattern

Named = Literal["kernel", "kind", "library", "family", "op", "module", "python", "comm"]


class WrongChangeError(Error):
    """A change cannot be made; one plain sentence says why."""


class NoMatchError(WrongChangeError):
    """The trace does not have what a change is about."""


class Scaled(msgspec.Struct, frozen=True):
    """Kernels, or threads during some slices, take another time.

    That is a share of their time, a fixed time, or the least time that the device
    allows. At a factor of 0, ops, modules and Python frames go with all that they
    launch. `python` without a pattern is what threads do outside of ops and calls.
    `comm`, which has no pattern, is communication.
    """

    what: Named
    pattern: str
    factor: float | None = None
    ns: int | None = None  # if both are None: the kernel's own least time


class FusedKernels(msgspec.Struct, frozen=True):
    """The kernels of a fusable run become one kernel."""

    place: int | None = None  # index in traceEvents of a kernel of the run; None: all


class Graphed(msgspec.Struct, frozen=True):
    """All launches of each step, or of each of some slices, become one graph launch.

    What the thread does between these launches, or in the slices, is gone.
    """

    # "": each step; else the number of a step, or a search for slices
    pattern: str = ""


class Unsynced(msgspec.Struct, frozen=True):
    """Threads do not wait for the device in some calls, or within some slices."""

    pattern: str


class Loaded(msgspec.Struct, frozen=True):
    """Workers load batches beside the thread that launches."""

    workers: int = 1


class Overlapped(msgspec.Struct, frozen=True):
    """Nothing waits for communication only because it follows it on a stream."""


class OnDevice(msgspec.Struct, frozen=True):
    """Each kernel takes as much more or less as its bound on another device."""

    name: str


Change = Scaled | FusedKernels | Graphed | Unsynced | Loaded | Overlapped | OnDevice

AMOUNT = r"(?:x(?P<factor>\d+(?:\.\d*)?|\.\d+)|(?P<time>\d[\d.]*\s?(?:ns|us|ms|s))|(?P<bound>bound))"
SCALED = lazy_pattern(
    rf"(?P<what>kernel|kind|library|family|op|module|python):(?P<pattern>.*\S)\s+{AMOUNT}",
    re.DOTALL,
)
FACTOR = lazy_pattern(
    r"(?P<what>python|comm)\s+(?P<bandwidth>bandwidth=)?x(?P<factor>\d+(?:\.\d*)?|\.\d+)"
)
OTHER = lazy_pattern(
    r"(?P<what>fuse|graph|no-sync|loader|overlap|device)"
    r"(?:(?::|(?<=device)=)\s*(?P<rest>.*\S))?",
    re.DOTALL,
)
WORKERS = lazy_pattern(r"workers=(\d{1,99})")
FORMS = (
    "kernel:PATTERN x0.5, kind:gemm 40us, library:cutlass x0.5, kernel:PATTERN bound, "
    "op:PATTERN x0, "
    "module:PATTERN x0, python x0.5, python:PATTERN x0.5, fuse, fuse:EVENT, graph, graph:RANGE, "
    "no-sync:PATTERN, loader, loader:workers=4, comm x0, comm bandwidth=x2, overlap or device=NAME"
)
KINDS = tuple(dict.fromkeys(re.findall(r"(?:^|, | or )([a-z-]+[:=]?)", FORMS)))
"""How changes begin: `kernel:`, `loader`, ..."""
MAX_WORKERS = 1 << 10


def parse_change(text: str) -> Change:
    """Parse a change.

    >>> parse_change("kind:gemm x0.8")
    Scaled(what='kind', pattern='gemm', factor=0.8, ns=None)

    Raises:
        WrongChangeError: If the text is no change.
    """
    text = text.strip()
    if match := SCALED.fullmatch(text):
        return _scaled(match)
    if match := FACTOR.fullmatch(text):
        return _scaled_as_a_whole(match)
    match = OTHER.fullmatch(text)
    change = _other(match["what"], match["rest"] or "") if match else None
    if change is None:
        raise WrongChangeError(f'Unknown change "{text}". Valid: {FORMS}.')
    return change


def _scaled(match: re.Match[str]) -> Scaled:
    """Parse `kernel:PATTERN x0.5`, `kernel:PATTERN 40us` or `kernel:PATTERN bound`."""
    what = match["what"]
    pattern = match["pattern"]
    factor = None if match["factor"] is None else float(match["factor"])
    if what in ("op", "module", "python") and factor is None:
        raise WrongChangeError(
            f"{what}:{pattern} takes a factor, not a time: {what}:{pattern} x0.5"
        )

    ns = None
    if match["time"] is not None:
        ns = parse_time(match["time"])
        if ns is None:
            raise WrongChangeError(
                f"Unknown time {match['time']}: write 40us, for example."
            )
    return Scaled(what=what, pattern=pattern, factor=factor, ns=ns)  # type: ignore[arg-type]


def _scaled_as_a_whole(match: re.Match[str]) -> Scaled:
    """Parse `python x0.5`, `comm x0` or `comm bandwidth=x2`."""
    what = match["what"]
    factor = float(match["factor"])
    if match["bandwidth"]:
        if what == "python" or factor == 0:
            raise WrongChangeError(
                f'Unknown change "{match[0]}": write comm bandwidth=x2, for example.'
            )
        factor = 1 / factor
    return Scaled(what=what, pattern="", factor=factor)  # type: ignore[arg-type]


def _other(what: str, rest: str) -> Change | None:
    """Parse a change that scales nothing; None if there is none like it.

    Args:
        what: The name of the change.
        rest: What follows the colon.
    """
    match what:
        case "fuse" if not rest:
            return FusedKernels()
        case "fuse" if rest.isdecimal():
            return FusedKernels(place=int(rest))
        case "graph":
            return Graphed(pattern=rest)
        case "loader" if not rest:
            return Loaded()
        case "loader":
            workers = _workers(rest)
            return None if workers is None else Loaded(workers=workers)
        case "no-sync" if rest:
            return Unsynced(pattern=rest)
        case "device" if rest:
            return OnDevice(name=rest)
        case "overlap" if not rest:
            return Overlapped()
    return None


def _workers(rest: str) -> int | None:
    """Parse `workers=4`; None if it is something else, or too many."""
    match = WORKERS.fullmatch(rest)
    if match is None:
        return None
    workers = int(match[1])
    return workers if 0 < workers <= MAX_WORKERS else None
