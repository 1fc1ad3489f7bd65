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
    """What one device did during its span, or during a step or a window; in ns.

    compute + exposed_comm + exposed_copy + idle = span, and `idle` (reason -> ns,
    without zeros, see IDLE) adds up to idle, exactly.
    """

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
    """A step from its start to its end, on each device. It starts so many ns after the
    trace."""

    name: str
    start_ns: int
    dur_ns: int
    devices: tuple[DeviceAccount, ...]


class Gap(msgspec.Struct, frozen=True):
    """A stretch of idle time of one device, which starts so many ns after the trace.

    `op`, `annotation`, `module` and `frame` covered most of the time before the launch,
    and `drained_by` is the call inside which the launching thread was when the gap
    began, if that call waits for the device and the next event was not launched yet;
    each None if there is none.
    """

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

    op + python + wait + nothing = that span. Time for which only an annotation was
    recorded is in `nothing_ns`, and again in `annotation_ns`.
    """

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
    """What better kernels could save. Times are effective; known + unknown is their
    sum."""

    known_ns: int  # of kernels whose bound is known
    unknown_ns: int
    at_stake_ns: int  # of the known ones, an estimate: by attainable rates
    # of known_ns: kernels with an attainable rate that nobody has measured
    assumed_ns: int
    at_most_ns: int = 0  # of the known ones, by the full rates of the data sheet


class Share(msgspec.Struct, frozen=True):
    """All runs of one kernel, or all calls of one kind of module, for people."""

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


class CpuWork(msgspec.Struct, frozen=True):
    """What the time of the threads that run ops (of all, if none does) goes to where
    there is no GPU event: by name, the longest first, how long each was the innermost
    slice (ns)."""

    whole_ns: int  # of all ops, runtime calls, functions and waits
    ops: tuple[Share, ...]  # and runtime calls
    functions: tuple[Share, ...]
    waits: tuple[Share, ...]


NEGLIGIBLE_SHARE = 0.005
"""Of the span, or of the steps together where those are shorter. A finding with a
smaller upper bound is negligible: it comes last, and only where all findings are asked
for."""
NOTHING = 2000  # a smaller part of the time is worth nothing
# from this share on that is not understood, an answer by a replay begins with that
DOUBTFUL = 0.05


class DeviceResidual(msgspec.Struct, frozen=True):
    """How much of a device's span is not understood."""

    device: Id
    residual_share: float


class SomeSteps(msgspec.Struct, frozen=True, kw_only=True):
    """What a change saves that saves nothing in most steps: a phase that few of them
    have."""

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


class Together(msgspec.Struct, frozen=True):
    """The changes of the first findings that have one, made at once: see WhatIf."""

    findings: int
    before_ns: int
    after_ns: int
    saved_ns: int


LISTED_DEVICE = "a device of the table of peaks"


class Unknown(msgspec.Struct, frozen=True):
    """What is unknown, because something was not recorded."""

    rule: str
    missing: str
    # "" where nothing shows a GPU, or it is not one of the table of peaks
    record_with: str


class WhyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `why --json` prints of all answers about a trace, or about a part of it."""

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
    together: Together | None = None
    cannot_tell: tuple[Unknown, ...]
    cpu: tuple[ThreadAccount, ...]
    cpu_work: CpuWork | None = None  # None with GPU events


class Shorter(msgspec.Struct, frozen=True, eq=False):
    """Each of these GPU events or launch calls takes so much less; arrays of shape
    [rows]."""

    rows: Rows
    ns: Int64s


class Unmade(msgspec.Struct, frozen=True, eq=False):
    """These calls are not made: they take no time and wait for nothing."""

    rows: Rows


class Unawaited(msgspec.Struct, frozen=True, eq=False):
    """In these calls threads do not wait for the device, nor fill the buffer of a copy;
    copies of memory among the rows take no time; later work keeps its order."""

    rows: Rows


class Hurried(msgspec.Struct, frozen=True, eq=False):
    """What threads that launch do by themselves at these times (ns of the file),
    outside of calls that launch or wait, takes no time."""

    cover: Cover


Wanted = Shorter | Unmade | Unawaited | Hurried | str
"""What a finding would have done about it, exactly enough to be replayed (see
replay/worth.py); a text is a change of `fusetui whatif`, such as `fuse` or `loader`."""


class Why(WhyDocument, frozen=True, kw_only=True):
    """All answers, and what else is told or compared of them."""

    # of each gap's next event and launch, -1 for none
    gap_rows: tuple[tuple[int, int], ...] = ()
    ends_early: bool  # the file: what was not recorded may be in the rest of it
    module_times: Modules | None = None  # with what belongs to no module
    breakdown: Breakdown | None = None
    accelerator: tuple[str, int] = ("", 0)  # see other_accelerator
    # effective ns of kernels by family, "" for unknown names
    families: dict[str, int] = {}
    below: dict[str, int] = {}  # by rule, ns at stake that are too little for a finding
    # of each finding, what would be done about it
    wanted: tuple[Wanted | None, ...] = ()
    left_out: int = 0  # first steps of which rules about kernels do not speak
    # what was not recorded, and what records it: see recorded.py
    lacks: dict[str, str] = {}


def considerable(found: Why) -> tuple[Finding, ...]:
    """The findings that are not negligible, which come first."""
    return tuple(one for one in found.findings if not one.negligible)


def negligible(found: Why) -> tuple[Finding, ...]:
    """The findings below the floor, which come last."""
    return tuple(one for one in found.findings if one.negligible)


CLASSES = ("compute", "exposed_comm", "exposed_copy", "idle")


def steps_tell(found: Why) -> bool:
    """Whether the steps, by time, hold at least half of the work of the devices. A step
    that only launches work that runs after it says nothing about the GPU."""
    if found.about or not found.steps:
        return False
    whole = sum(one.busy_ns for one in found.devices)
    inside = sum(one.busy_ns for step in found.steps for one in step.devices)
    return 0 < whole <= 2 * inside


def median_step(steps: Sequence[StepAccount]) -> StepAccount:
    """The working step of median length, the shorter one of the middle two; of at least
    one."""
    ordered = sorted(working(steps), key=lambda step: (step.dur_ns, step.start_ns))
    return ordered[(len(ordered) - 1) // 2]


def working(steps: Sequence[StepAccount]) -> Sequence[StepAccount]:
    """The steps in which a device ran, or all if none did: recording often ends early
    in a step."""
    return [step for step in steps if any(one.busy_ns for one in step.devices)] or steps


def totals(devices: Sequence[DeviceAccount]) -> Counter[str]:
    """Classes, what is hidden, and the reasons of idle time by name, summed over
    devices; ns."""
    found: Counter[str] = Counter()
    for one in devices:
        for name in ("span", *CLASSES, "hidden_comm", "hidden_copy"):
            found[name] += getattr(one, f"{name}_ns")
        found.update(one.idle)
    return found


LOADER, COMPILER = "data_loading", "compilation"
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


_REASONS = """\
unlinked: ? | launch not recorded | for an unknown reason | the launch of the next kernel was
    not recorded | for a reason that was not recorded
graph: g | in a graph | between graph nodes | between the nodes of a graph | between the nodes of
    a graph
host_sync: s | sync | in synchronization | not launched yet: the thread waited for the GPU |
    while the thread that launches waited for the GPU | the GPU was idle while the launching
    thread waited in a synchronization
host_alloc: m | allocation | in allocations | not launched yet: memory was allocated or freed |
    while the thread that launches allocated or freed memory | the GPU was idle while memory was
    allocated
host_call: r | runtime call | in runtime calls | not launched yet: other runtime calls | while
    the thread that launches was in other runtime calls | the GPU was idle during runtime calls
host_op: o | CPU op | in CPU ops | not launched yet: CPU ops ran | while the thread that
    launches ran CPU ops | the GPU was idle while ops ran on the CPU
host_python: p | Python | in Python | not launched yet: Python ran | while the thread that
    launches ran Python | the GPU was idle while Python ran
host_annotation: a | annotation | in annotations | not launched yet: inside an annotation |
    while the thread that launches was inside an annotation | the GPU was idle in annotated code
host_nothing: n | nothing recorded | with nothing recorded | not launched yet: nothing was
    recorded | while nothing was recorded of the thread that launches | the GPU was idle and
    nothing was recorded on the launching thread
launch_call: c | launch call | in launch calls | the launch call was running | while a launch
    call was running | the GPU was idle during launch calls
launch_latency: l | launch latency | in launch latency | the usual delay from launch to start |
    between a launch and its start, as is usual
queued: q | queued | although work was queued | launched, but not started yet | although the
    next event was launched already | the GPU was idle though work had been launched
after: e | after the last event | after the last event | after the last GPU event | after the
    last GPU event
"""
# unlinked: what launched the event that ends the gap is unknown. graph: its call
# launched earlier events too. host_*: not launched yet; what the launching thread was
# doing, in the order of Host. queued: launched, but not started. after: only in steps
# and windows.

_each = (one.partition(": ") for one in _REASONS.replace("\n    ", " ").splitlines())
IDLE: Final = {key: IdleReason(*told.split(" | ")) for key, _, told in _each}
"""Every ns of idle time has one of these reasons."""
