"""The changes that a user may request, such as `kernel:gemm x0.5` or
`loader:workers=4`, and their parser. docs/whatif.md lists them all.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from fusetui import Error
from fusetui.text.figures import parse_time
from fusetui.text.patterns import lazy_pattern

Named = Literal["kernel", "kind", "library", "family", "op", "module", "python", "comm"]


class WrongChangeError(Error):
    """A change that cannot be made. The message is one plain sentence that says why."""


class NoMatchError(WrongChangeError):
    """A change of something that the trace does not have."""


class Scaled(msgspec.Struct, frozen=True):
    """Kernels take another time, or threads do during some slices.

    That is a share of their time (`factor`), a fixed time (`ns`), or if both are None
    the least time that the device allows a kernel. At a factor of 0, ops, modules and
    Python frames disappear with all that they launch. `python` without a pattern is
    what threads do outside of ops and calls. `comm`, which has no pattern, is the
    communication between devices.
    """

    what: Named
    pattern: str  # a name, or a search; "" for python and comm as a whole
    factor: float | None = None
    ns: int | None = None


class FusedKernels(msgspec.Struct, frozen=True):
    """The kernels of a run that can be fused become one kernel."""

    # The index in traceEvents of any kernel of the run; None for all runs.
    event: int | None = None


class Graphed(msgspec.Struct, frozen=True):
    """All launches of each step, or within some slices, become one launch of a graph.

    What the thread does between these launches, or in the slices, takes no time any
    more.
    """

    # "" for each step, the number of one step, or a search for slices.
    pattern: str = ""

    @property
    def is_of_steps(self) -> bool:
        """Whether the pattern names all steps, or one by its number."""
        return not self.pattern or self.pattern.isdecimal()


class Unsynced(msgspec.Struct, frozen=True):
    """Threads do not wait for the device in some calls, or within some slices."""

    pattern: str  # the name of these, or a search for them


class Loaded(msgspec.Struct, frozen=True):
    """Workers load batches while the thread that launches work does other things."""

    workers: int = 1


class Overlapped(msgspec.Struct, frozen=True):
    """Nothing waits for communication only because it follows it on a stream."""


class OnDevice(msgspec.Struct, frozen=True):
    """Kernels run on another device: each takes longer or less by its limits there."""

    name: str  # of the device


Change = Scaled | FusedKernels | Graphed | Unsynced | Loaded | Overlapped | OnDevice

# The patterns of changes. What they name `what` becomes the field of that name.
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
    """Parse a change as a user writes it.

    >>> parse_change("kind:gemm x0.8")
    Scaled(what='kind', pattern='gemm', factor=0.8, ns=None)

    Raises:
        WrongChangeError: If the text is no change.
    """
    text = text.strip()
    if match := SCALED.fullmatch(text):
        return _parse_scaled(match)
    if match := FACTOR.fullmatch(text):
        return _parse_scaled_without_pattern(match)
    if match := OTHER.fullmatch(text):
        change = _parse_other(match["what"], match["rest"] or "")
        if change is not None:
            return change
    raise WrongChangeError(f'Unknown change "{text}". Valid: {FORMS}.')


def _parse_scaled(match: re.Match[str]) -> Scaled:
    """Make the change of `kernel:PATTERN x0.5`, `... 40us` or `... bound`.

    Args:
        match: The parts of the text, by SCALED: `what` it is a change of, the
            `pattern`, and a `factor`, a `time` or neither.

    Raises:
        WrongChangeError: If a time cannot be given here, or is no time.
    """
    what = match["what"]
    pattern = match["pattern"]
    factor_text = match["factor"]
    time_text = match["time"]
    if what in ("op", "module", "python") and factor_text is None:
        raise WrongChangeError(
            f"{what}:{pattern} takes a factor, not a time: {what}:{pattern} x0.5"
        )

    factor = None if factor_text is None else float(factor_text)
    ns = None
    if time_text is not None:
        ns = parse_time(time_text)
        if ns is None:
            raise WrongChangeError(
                f"Invalid time {time_text}: use a unit, for example 40us."
            )
    return Scaled(what=what, pattern=pattern, factor=factor, ns=ns)  # type: ignore[arg-type]


def _parse_scaled_without_pattern(match: re.Match[str]) -> Scaled:
    """Make the change of `python x0.5`, `comm x0` or `comm bandwidth=x2`.

    Args:
        match: The parts of the text, by FACTOR.

    Raises:
        WrongChangeError: If a bandwidth cannot be given here, or is 0.
    """
    what = match["what"]
    factor = float(match["factor"])
    if match["bandwidth"]:
        if what == "python" or factor == 0:
            raise WrongChangeError(
                f'Unknown change "{match[0]}": use a factor, for example comm '
                "bandwidth=x2."
            )
        # Twice the bandwidth is half the time.
        factor = 1 / factor
    return Scaled(what=what, pattern="", factor=factor)  # type: ignore[arg-type]


def _parse_other(what: str, rest: str) -> Change | None:
    """Parse a change that scales no times, such as `fuse`, `loader` or
    `no-sync:PATTERN`.

    Args:
        what: The name of the change, such as "loader".
        rest: What follows the colon, or for `device` the equals sign; "" for nothing.

    Returns:
        The change; None if a change of this name cannot have such a rest.
    """
    match what:
        case "fuse" if not rest:
            return FusedKernels()
        case "fuse" if rest.isdecimal():
            return FusedKernels(event=int(rest))
        case "graph":
            return Graphed(pattern=rest)
        case "loader" if not rest:
            return Loaded()
        case "loader":
            workers = _parse_workers(rest)
            return None if workers is None else Loaded(workers=workers)
        case "no-sync" if rest:
            return Unsynced(pattern=rest)
        case "device" if rest:
            return OnDevice(name=rest)
        case "overlap" if not rest:
            return Overlapped()
    return None


def _parse_workers(rest: str) -> int | None:
    """Parse `workers=4`.

    Returns:
        The number of workers; None if the text is something else, or the number is 0 or
        more than MAX_WORKERS.
    """
    match = WORKERS.fullmatch(rest)
    if match is None:
        return None
    workers = int(match[1])
    return workers if 0 < workers <= MAX_WORKERS else None
