"""What is found out about a trace, as records: text, Markdown and JSON are made from
these.

Ids of devices, processes and threads are representable in JSON (see `exact_id`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.ids import Id
from fusetui.trace.model.intervals import Cover
from fusetui.trace.program.modules import Modules, ModuleTime

Certainty = Literal["certain", "likely"]
WorthNote = Literal[
    # it cannot save more: the change is a bound, and nothing was inferred; or when
    # workers of a data loader have their batches ready after it is not known
    "at_most",
    "own_time",  # if the threads that launch took no time between their calls
    # if one worker loads the batches ahead, each in the time that it takes now
    "one_worker",
    # at most: if the thread waited for no batch of the workers that there are
    "no_batch_waits",
    "no_change",  # what would mend it is no change of recorded work
    "warm_up",  # it happens once, however many steps there are
    "note",  # no time is at stake
    "not_found",  # the replay has nothing to which its change applies
    "residual",  # too little of the recording is understood
    "no_waits",  # of the calls only those that launch were recorded
    "unclear",  # too little of what follows from the change is
    # it saves nothing in the replay, and what limits the time then is not known
    "limit_unknown",
    "some_steps",  # it saves nothing in most steps, or in the median one, but in others
    "part",  # a part of the trace was asked about
    "large",  # replaying all findings of this trace takes long: --worth does it
    "left_out",  # no replay was asked for
]
"""What has to be said of a worth, or why there is none."""


class DeviceAccount(msgspec.Struct, frozen=True):
    """The breakdown of one device during its span, a step or a window; in ns.

    compute + exposed_comm + exposed_copy + idle = span, and `idle` (reason -> ns,
    without zeros, see IDLE) adds up to idle, exactly."""

    device: Id
    name: str  # empty if the file does not say
    span_ns: int
    compute_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    idle_ns: int
    hidden_comm_ns: int  # behind compute
    hidden_copy_ns: int  # behind compute or communication
    launch_latency_usual_ns: int
    idle: dict[str, int]

    @property
    def busy_ns(self) -> int:
        return self.span_ns - self.idle_ns


class StepAccount(msgspec.Struct, frozen=True):
    """A step from its start to its end, on each device; its start is in ns after the
    start of the trace."""

    name: str
    start_ns: int
    dur_ns: int
    devices: tuple[DeviceAccount, ...]


class Gap(msgspec.Struct, frozen=True):
    """A gap in the work of one device; its start is in ns after the start of the trace.

    `op`, `annotation`, `module` and `frame` covered most of the time before the
    launch. `drained_by` is the call that the launching thread was in when the gap
    began, if that call waits for the device and the next event was not launched yet.
    Each is None if there is none."""

    device: Id
    start_ns: int
    dur_ns: int
    idle: dict[str, int]
    previous: str | None
    next: str
    op: str | None
    annotation: str | None
    module: str | None
    frame: str | None
    drained_by: str | None


class ThreadAccount(msgspec.Struct, frozen=True):
    """A CPU thread from its first start to its last end; in ns.

    op + python + wait + nothing = that span. Time with only an annotation is in
    `nothing_ns`, and also in `annotation_ns`."""

    process: Id
    thread: Id
    label: str
    span_ns: int
    op_ns: int  # ops and runtime calls
    python_ns: int
    wait_ns: int  # for the device, a lock, a file, a socket or other ranks
    nothing_ns: int
    annotation_ns: int
    collective_ns: int = 0  # of wait_ns: in a collective on the CPU (gloo, MPI, UCC)


class Ceiling(msgspec.Struct, frozen=True):
    """The possible saving by better kernels. Times are effective; known + unknown is
    their sum."""

    known_ns: int  # of kernels whose bound is known
    unknown_ns: int
    at_stake_ns: int  # of the known ones, an estimate: by attainable rates
    # of known_ns: kernels with an attainable rate that nobody has measured
    assumed_ns: int
    at_most_ns: int = 0  # of the known ones, by the full rates of the data sheet


class Share(msgspec.Struct, frozen=True):
    """All runs of one kernel, or all calls of one type of module, for printing."""

    name: str
    count: int
    ns: int  # of a kernel effective; of a module what belongs to none further inside


class Breakdown(msgspec.Struct, frozen=True):
    """What the time of GPUs goes to, the longest first, and the time that the shares
    are of."""

    kernels: tuple[Share, ...]
    kernels_ns: int
    modules: tuple[Share, ...]  # () when a part was asked for
    modules_ns: int


class AcceleratorWork(msgspec.Struct, frozen=True):
    """The time of the events of a device that is no GPU, by name, longest first, and
    how long any of them ran (ns): names may lie inside each other."""

    events: tuple[Share, ...]
    whole_ns: int


class CpuWork(msgspec.Struct, frozen=True):
    """The time of the threads that run ops (of all, if none does), in a trace
    without GPU events: by name, longest first, how long each was the innermost slice
    (ns)."""

    whole_ns: int  # of all ops, runtime calls, functions and waits
    ops: tuple[Share, ...]  # and runtime calls
    functions: tuple[Share, ...]
    waits: tuple[Share, ...]


NEGLIGIBLE_SHARE = 0.005
"""Of the span, or of the steps together where those are shorter. A finding with a
smaller upper bound is negligible: it comes last, and only where all findings are asked
for."""
NOTHING: Final = 2000
"""A gain of less than 1 / NOTHING of the time is none."""
DOUBTFUL: Final = 0.05
"""An answer by a replay begins with what is not understood where that is a larger share.
Where it is more than `UNKNOWN` of replay/whatif.py, there is no answer."""


class DeviceResidual(msgspec.Struct, frozen=True):
    """The unexplained share of a device's span."""

    device: Id
    residual_share: float


class SomeSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The saving of a change that helps only a few steps, in a phase that most steps
    lack."""

    steps: int  # that become shorter
    of: int  # all that count
    saved_ns: int  # of these steps together
    longer: int = 0  # steps that become longer: another one no longer waits for them
    lost_ns: int = 0  # of those steps together

    @property
    def net_ns(self) -> int:
        """What all steps together become shorter by, but for differences that are
        nothing."""
        return self.saved_ns - self.lost_ns


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A claim with its evidence."""

    rule: str
    text: str
    at_stake_ns: int | None = None  # an upper bound; None: a note
    share: float | None = None  # of the span or the median step
    certainty: Certainty
    why_likely: str | None = None
    evidence: tuple[int, ...] = ()  # rows of the trace, the largest first, at most 5
    try_: str | None = msgspec.field(name="try", default=None)
    part_of: str | None = None
    thresholds: dict[str, float] = {}
    # of a step, else of the span, saved by a replay with its change
    worth_ns: int | None = None
    worth_share: float | None = None
    worth_note: WorthNote | None = "left_out"
    worth_steps: SomeSteps | None = None  # instead of these, with the note some_steps
    negligible: bool = False  # its upper bound is below NEGLIGIBLE_SHARE of the time


class CombinedWorth(msgspec.Struct, frozen=True):
    """The changes of the first findings with a change, made together: see WhatIf."""

    findings: int
    before_ns: int
    after_ns: int
    saved_ns: int


LISTED_DEVICE = "a device of the table of peaks"


class Unknown(msgspec.Struct, frozen=True):
    """Unavailable answers, because something was not recorded."""

    rule: str
    missing: str
    # "" where nothing shows a GPU, or it is not one of the table of peaks
    record_with: str


class WhyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `why --json` for a trace, or for a part of it."""

    file: str
    base_ns: str  # the time in the file at which the trace begins
    about: str | None  # the step or window that the figures are about
    devices: tuple[DeviceAccount, ...]
    steps_by: str | None  # what the steps are, for people
    steps: tuple[StepAccount, ...]
    gaps_count: int  # of all, of which `gaps` are the longest
    gaps: tuple[Gap, ...]
    ceiling: Ceiling | None = None
    modules: tuple[ModuleTime, ...] | None = None  # None when a part was asked for
    findings: tuple[Finding, ...] = ()
    worth_of: Literal["step", "span"] | None = None  # None: no worth is known
    worth_before_ns: int | None = None  # that step as replayed: see WhatIf
    residuals: tuple[DeviceResidual, ...] = ()
    residual_share: float | None = None  # the largest of these, and after the changes
    together: CombinedWorth | None = None
    cannot_tell: tuple[Unknown, ...]
    cpu: tuple[ThreadAccount, ...]
    cpu_work: CpuWork | None = None  # None with GPU events


class ReducedDurations(msgspec.Struct, frozen=True, eq=False):
    """Each of these GPU events or launch calls takes so much less; arrays of shape
    [rows]."""

    rows: Rows
    ns: Int64s


class RemovedCalls(msgspec.Struct, frozen=True, eq=False):
    """These calls are not made: they take no time and wait for nothing."""

    rows: Rows


class AsyncCalls(msgspec.Struct, frozen=True, eq=False):
    """In these calls threads do not wait for the device, nor fill the buffer of a copy;
    copies of memory among the rows take no time; later work keeps its order."""

    rows: Rows


class FreeThreadTime(msgspec.Struct, frozen=True, eq=False):
    """What threads that launch do by themselves at these times (ns of the file),
    outside of calls that launch or wait, takes no time."""

    cover: Cover


Wanted = ReducedDurations | RemovedCalls | AsyncCalls | FreeThreadTime | str
"""What a finding would have done about it, exactly enough to be replayed (see
replay/worth.py); a text is a change of `fusetui whatif`, such as `fuse` or `loader`."""


class Why(WhyDocument, frozen=True, kw_only=True):
    """All answers about a trace, or about a part of it. Its public fields are those of
    the document; the private ones are what sentences, comparisons and replays need
    beside them."""

    # of each gap: the rows of the event that ends it and of its launch, -1 for none
    _gap_rows: tuple[tuple[int, int], ...] = ()
    # the file ends early: what was not recorded may be in the rest of it
    _ends_early: bool
    _module_times: Modules | None = None  # with what belongs to no module
    _breakdown: Breakdown | None = None
    # of a device that is no GPU: its name and number of events; see other_accelerator
    _accelerator: tuple[str, int] = ("", 0)
    _accelerator_work: AcceleratorWork | None = None  # None without such a device
    # effective ns of kernels by family, "" for unknown names
    _families: dict[str, int] = {}
    # by rule: ns of upper bounds that are too small for a finding
    _below: dict[str, int] = {}
    # of each finding: the change whose gain is estimated, None if there is none
    _wanted: tuple[Wanted | None, ...] = ()
    _left_out: int = 0  # first steps that rules about kernels leave out
    # what was not recorded, and what records it: see needs.py
    _lacks: dict[str, str] = {}


def considerable(why: Why) -> tuple[Finding, ...]:
    """The findings that are not negligible, which come first."""
    return tuple(finding for finding in why.findings if not finding.negligible)


def negligible(why: Why) -> tuple[Finding, ...]:
    """The findings below the floor, which come last."""
    return tuple(finding for finding in why.findings if finding.negligible)


CLASSES: Final = ("compute", "exposed_comm", "exposed_copy", "idle")
"""The classes of the account, which add up to the span."""


def steps_tell(why: Why) -> bool:
    """Whether the steps, by time, hold at least half of the work of the devices. A step
    that only launches work that runs after it says nothing about the GPU."""
    if why.about or not why.steps:
        return False
    all_ns = sum(device.busy_ns for device in why.devices)
    in_steps_ns = 0
    for step in why.steps:
        in_steps_ns += sum(device.busy_ns for device in step.devices)
    return 0 < all_ns <= 2 * in_steps_ns


def median_step(steps: Sequence[StepAccount]) -> StepAccount:
    """The working step of median length, the shorter one of the middle two; of at least
    one."""
    by_length = sorted(working(steps), key=lambda step: (step.dur_ns, step.start_ns))
    return by_length[(len(by_length) - 1) // 2]


def working(steps: Sequence[StepAccount]) -> Sequence[StepAccount]:
    """The steps in which a device ran, or all if none did: recording often ends early
    in a step."""
    busy_steps = [
        step for step in steps if any(device.busy_ns for device in step.devices)
    ]
    return busy_steps or steps


_SUMMED: Final = ("span", *CLASSES, "hidden_comm", "hidden_copy")


def totals(devices: Sequence[DeviceAccount]) -> Counter[str]:
    """Classes, what is hidden, and the reasons of idle time by name, summed over
    devices; ns."""
    total_ns: Counter[str] = Counter()
    for device in devices:
        for name in _SUMMED:
            total_ns[name] += getattr(device, f"{name}_ns")
        total_ns.update(device.idle)
    return total_ns


LOADER: Final = "data_loading"
COMPILER: Final = "compilation"
"""What a thread that launches does instead, by the rules data-loading and
recompilation."""


class IdleReason(msgspec.Struct, frozen=True):
    """One reason, in words for different places. Its key in IDLE is its name in JSON,
    and that of its color in the schemes of the app."""

    letter: str  # on the timeline
    short: str  # in a column of a table
    where: str  # in a few words
    sentence: str
    while_: str  # at the end of a sentence
    meanwhile: str = ""  # of a rank that others waited for; "" is not told


IDLE: Final[dict[str, IdleReason]] = {
    # What launched the event that ends the gap is unknown.
    "unlinked": IdleReason(
        letter="?",
        short="launch not recorded",
        where="for an unknown reason",
        sentence="the next launch was not recorded",
        while_="for a reason that was not recorded",
    ),
    # Its call launched earlier events too.
    "graph": IdleReason(
        letter="g",
        short="in a graph",
        where="between graph nodes",
        sentence="between the nodes of a graph",
        while_="between the nodes of a graph",
    ),
    # From here on to host_nothing, not launched yet: what the launching thread was
    # doing, in the order of Host.
    "host_sync": IdleReason(
        letter="s",
        short="sync",
        where="in synchronization",
        sentence="not launched yet: the thread waited for the GPU",
        while_="while the launching thread waited for the GPU",
        meanwhile="the GPU was idle while the launching thread waited in a synchronization",
    ),
    "host_alloc": IdleReason(
        letter="m",
        short="allocation",
        where="in allocations",
        sentence="not launched yet: memory was allocated or freed",
        while_="while the launching thread allocated or freed memory",
        meanwhile="the GPU was idle while memory was allocated",
    ),
    "host_call": IdleReason(
        letter="r",
        short="runtime call",
        where="in runtime calls",
        sentence="not launched yet: other runtime calls",
        while_="while the launching thread was in other runtime calls",
        meanwhile="the GPU was idle during runtime calls",
    ),
    "host_op": IdleReason(
        letter="o",
        short="CPU op",
        where="in CPU ops",
        sentence="not launched yet: CPU ops ran",
        while_="while the launching thread was in CPU ops",
        meanwhile="the GPU was idle while ops ran on the CPU",
    ),
    "host_python": IdleReason(
        letter="p",
        short="Python",
        where="in Python",
        sentence="not launched yet: Python ran",
        while_="while the launching thread ran Python",
        meanwhile="the GPU was idle while Python ran",
    ),
    "host_annotation": IdleReason(
        letter="a",
        short="annotation",
        where="in annotations",
        sentence="not launched yet: inside an annotation",
        while_="while the launching thread was inside an annotation",
        meanwhile="the GPU was idle in annotated code",
    ),
    "host_nothing": IdleReason(
        letter="n",
        short="nothing recorded",
        where="with nothing recorded",
        sentence="not launched yet: nothing was recorded",
        while_="while nothing was recorded on the launching thread",
        meanwhile="the GPU was idle and nothing was recorded on the launching thread",
    ),
    "launch_call": IdleReason(
        letter="c",
        short="launch call",
        where="in launch calls",
        sentence="the launch call was running",
        while_="while a launch call was running",
        meanwhile="the GPU was idle during launch calls",
    ),
    "launch_latency": IdleReason(
        letter="l",
        short="launch latency",
        where="in launch latency",
        sentence="typical launch latency",
        while_="in typical launch latency",
    ),
    # Launched, but not started.
    "queued": IdleReason(
        letter="q",
        short="queued",
        where="with work already queued",
        sentence="launched, but not started yet",
        while_="with the next event already launched",
        meanwhile="the GPU was idle with work already launched",
    ),
    # Only in steps and windows.
    "after": IdleReason(
        letter="e",
        short="after the last event",
        where="after the last event",
        sentence="after the last GPU event",
        while_="after the last GPU event",
    ),
}
"""Every ns of idle time has one of these reasons, by its name in JSON."""
