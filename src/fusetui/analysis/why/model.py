"""Records of the facts about a trace.

Text, Markdown and JSON are made from these. Ids of devices, processes and threads are
representable in JSON (see `exact_id`).
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
    # The change cannot save more: it is a bound, and nothing was inferred. Or it is
    # not known when workers of a data loader have their batches ready after it.
    "at_most",
    # The threads that launch would take no time between their calls.
    "own_time",
    # One worker would load the batches ahead, each in the time that it takes now.
    "one_worker",
    # At most this: the thread would wait for no batch of the workers that there are.
    "no_batch_waits",
    # What would mend it is no change of recorded work.
    "no_change",
    # It happens once, however many steps there are.
    "warm_up",
    # No time is at stake.
    "note",
    # The replay has nothing to which the change applies.
    "not_found",
    # Too little of the recording is understood.
    "residual",
    # Of the calls, only those that launch were recorded.
    "no_waits",
    # Too little is understood of what follows from the change.
    "unclear",
    # It saves nothing in the replay, and what limits the time then is not known.
    "limit_unknown",
    # It saves nothing in most steps, or in the median one, but in others.
    "some_steps",
    # A part of the trace was asked about.
    "part",
    # Replaying all findings of this trace takes long: --worth does it.
    "large",
    # No replay was asked for.
    "left_out",
]
"""What has to be said about an estimated gain, or why there is none."""


class DeviceAccount(msgspec.Struct, frozen=True):
    """What one device did during its span, a step or a window; in ns.

    compute + exposed_comm + exposed_copy + idle = span, exactly. `idle` has the idle
    time by reason, without zeros (see IDLE), and adds up to idle_ns, exactly.
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
        """Return how long the device ran anything."""
        return self.span_ns - self.idle_ns


class StepAccount(msgspec.Struct, frozen=True):
    """A step from its start to its end, with the account of each device.

    Its start is in ns after the start of the trace.
    """

    name: str
    start_ns: int
    dur_ns: int
    devices: tuple[DeviceAccount, ...]


class Gap(msgspec.Struct, frozen=True):
    """A gap in the work of one device; its start is in ns after the start of the trace.

    `op`, `annotation`, `module` and `frame` covered most of the time before the launch
    of the next event. `drained_by` is the call that the launching thread was in when
    the gap began, if that call waits for the device and the next event was not launched
    yet. Each is None if there is none.
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
    """What a CPU thread did from its first start to its last end; in ns.

    op + python + wait + nothing = span. Time with only an annotation is in
    `nothing_ns`, and also in `annotation_ns`.
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
    # The part of wait_ns that is in a collective on the CPU (gloo, MPI, UCC).
    collective_ns: int = 0


class Ceiling(msgspec.Struct, frozen=True):
    """What better kernels could save. All times are effective ones.

    known + unknown is the time of all kernels.
    """

    known_ns: int  # the time of kernels whose bound is known
    unknown_ns: int
    # What kernels with a known bound could save, an estimate by attainable rates.
    at_stake_ns: int
    # The part of known_ns with an attainable rate that nobody has measured.
    assumed_ns: int
    # What kernels with a known bound could save by the full rates of the data sheet.
    at_most_ns: int = 0


class Share(msgspec.Struct, frozen=True):
    """All runs of one kernel, or all calls of one type of module, for printing."""

    name: str
    count: int
    # The effective time of a kernel; of a module, the time of no module inside it.
    ns: int


class Breakdown(msgspec.Struct, frozen=True):
    """What the time of GPUs goes to, the longest shares first.

    `kernels_ns` and `modules_ns` are the times of which these are shares.
    """

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
    """What the threads that run ops spend their time on, in a trace without GPU events.

    If no thread runs ops, all threads count. Shares are by name, the longest first;
    their time is how long slices of the name were the innermost ones (ns).
    """

    whole_ns: int  # the time of all ops, runtime calls, functions and waits
    ops: tuple[Share, ...]  # ops and runtime calls
    functions: tuple[Share, ...]
    waits: tuple[Share, ...]


NEGLIGIBLE_SHARE = 0.005
"""A finding with a smaller upper bound is negligible.

It is a share of the span, or of the steps together where those are shorter. Negligible
findings come last, and only where all findings are asked for.
"""
MIN_GAIN_DIVISOR: Final = 2000
"""A gain of less than 1 / MIN_GAIN_DIVISOR of the time counts as no gain."""
MIN_DOUBTFUL_SHARE: Final = 0.05
"""From this share that is not understood on, the answer of a replay begins with a
doubt.

Above `UNKNOWN` of replay/whatif.py, there is no answer.
"""


class DeviceResidual(msgspec.Struct, frozen=True):
    """The share of a device's span that a replay does not explain."""

    device: Id
    residual_share: float


class SomeSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The saving of a change that helps only a few steps.

    It changes a phase that most steps do not have.
    """

    steps: int  # how many steps become shorter
    of: int  # how many steps count
    saved_ns: int  # by how much the shorter steps become shorter together
    longer: int = 0  # how many become longer: another one no longer waits for them
    lost_ns: int = 0  # by how much those become longer together

    @property
    def net_ns(self) -> int:
        """Return by how much all steps together become shorter.

        Differences that count as nothing are left out.
        """
        return self.saved_ns - self.lost_ns


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A claim about the trace with its evidence, as a rule reports it."""

    rule: str
    text: str
    at_stake_ns: int | None = None  # an upper bound; None: a note
    share: float | None = None  # of the span, or of the median step
    certainty: Certainty
    why_likely: str | None = None
    evidence: tuple[int, ...] = ()  # rows of the trace, the largest first, at most 5
    try_: str | None = msgspec.field(name="try", default=None)
    part_of: str | None = None
    thresholds: dict[str, float] = {}
    # What a replay with the change saves of a step, or of the span without steps.
    worth_ns: int | None = None
    worth_share: float | None = None
    worth_note: WorthNote | None = "left_out"
    worth_steps: SomeSteps | None = None  # instead of the two, with note some_steps
    negligible: bool = False  # its upper bound is below NEGLIGIBLE_SHARE of the time


class CombinedWorth(msgspec.Struct, frozen=True):
    """What the changes of the first findings save together; see WhatIf."""

    findings: int
    before_ns: int
    after_ns: int
    saved_ns: int


LISTED_DEVICE = "a device with known peak rates"
"""The need of rules that compare with the peak rates of the device, in words."""


class Unknown(msgspec.Struct, frozen=True):
    """An answer that is not available, because something was not recorded."""

    rule: str
    missing: str
    # The option that records it; "" where nothing shows a GPU, or where the GPU is
    # not in the table of peaks.
    record_with: str


class WhyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `why --json` for a trace, or for a part of it."""

    file: str
    base_ns: str  # the time in the file at which the trace begins
    about: str | None  # the step or window that the figures are about
    devices: tuple[DeviceAccount, ...]
    steps_by: str | None  # what the steps are, for people
    steps: tuple[StepAccount, ...]
    gaps_count: int  # how many gaps there are, of which `gaps` are the longest
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
    """The change that some GPU events or launch calls take less time."""

    rows: Rows
    ns: Int64s  # by how much each of `rows` becomes shorter


class RemovedCalls(msgspec.Struct, frozen=True, eq=False):
    """The change that some calls are not made: they take no time and wait for nothing."""

    rows: Rows


class AsyncCalls(msgspec.Struct, frozen=True, eq=False):
    """The change that threads do not wait for the device in some calls.

    They do not fill the buffer of a copy either. Copies of memory among the rows take
    no time. Later work keeps its order.
    """

    rows: Rows


class FreeThreadTime(msgspec.Struct, frozen=True, eq=False):
    """The change that threads that launch need no time for what they do by themselves.

    It holds at the times of the cover (ns of the file), outside of calls that launch or
    wait.
    """

    cover: Cover


Wanted = ReducedDurations | RemovedCalls | AsyncCalls | FreeThreadTime | str
"""What a finding would have changed, exactly enough to be replayed; see
replay/worth.py.

A text is a change of `fusetui whatif`, such as `fuse` or `loader`.
"""


class Why(WhyDocument, frozen=True, kw_only=True):
    """All answers about a trace, or about a part of it.

    The public fields are those of the document. The private ones are what sentences,
    comparisons and replays need besides.
    """

    # For each gap the rows of the event that ends it and of its launch; -1 for none.
    _gap_rows: tuple[tuple[int, int], ...] = ()
    # Whether the file ends early: what seems not recorded may be in the rest of it.
    _ends_early: bool
    _module_times: Modules | None = None  # with what belongs to no module
    _breakdown: Breakdown | None = None
    # The name of a device that is no GPU, and its number of events; see
    # other_accelerator.
    _accelerator: tuple[str, int] = ("", 0)
    _accelerator_work: AcceleratorWork | None = None  # None without such a device
    # The effective time of kernels (ns) by library, "" for unknown names.
    _families: dict[str, int] = {}
    # By rule the upper bounds (ns) that are too small for a finding.
    _below: dict[str, int] = {}
    # For each finding the change whose gain is estimated, None if there is none.
    _wanted: tuple[Wanted | None, ...] = ()
    _left_out: int = 0  # how many first steps the rules about kernels leave out
    # What was not recorded, and which option records it; see needs.py.
    _lacks: dict[str, str] = {}


def list_considerable(why: Why) -> tuple[Finding, ...]:
    """Return the findings that are not negligible; they come first."""
    return tuple(finding for finding in why.findings if not finding.negligible)


def list_negligible(why: Why) -> tuple[Finding, ...]:
    """Return the findings that are too small to be shown at first; they come last."""
    return tuple(finding for finding in why.findings if finding.negligible)


CLASSES: Final = ("compute", "exposed_comm", "exposed_copy", "idle")
"""The classes of the account, which add up to the span."""


def do_steps_hold_work(why: Why) -> bool:
    """Whether the steps hold at least half of the work of the devices, by time.

    A step that only launches work that runs after it says nothing about the GPU.
    """
    if why.about or not why.steps:
        return False

    all_ns = sum(device.busy_ns for device in why.devices)
    in_steps_ns = 0
    for step in why.steps:
        in_steps_ns += sum(device.busy_ns for device in step.devices)

    return all_ns > 0 and 2 * in_steps_ns >= all_ns


def find_median_step(steps: Sequence[StepAccount]) -> StepAccount:
    """Return the working step of median length, the shorter one of the middle two.

    Args:
        steps: At least one step.
    """
    working_steps = select_working_steps(steps)
    by_length = sorted(working_steps, key=lambda step: (step.dur_ns, step.start_ns))
    lower_middle = (len(by_length) - 1) // 2
    return by_length[lower_middle]


def select_working_steps(steps: Sequence[StepAccount]) -> Sequence[StepAccount]:
    """Return the steps in which a device ran anything, or all steps if none did.

    Recording often ends early in a step.
    """
    busy_steps = []
    for step in steps:
        if any(device.busy_ns for device in step.devices):
            busy_steps.append(step)

    return busy_steps or steps


def add_up_accounts(devices: Sequence[DeviceAccount]) -> Counter[str]:
    """Add up the accounts of several devices, in ns.

    The keys are the classes, what is hidden, and the reasons of idle time.
    """
    total_ns: Counter[str] = Counter()
    for device in devices:
        total_ns["span"] += device.span_ns
        total_ns["compute"] += device.compute_ns
        total_ns["exposed_comm"] += device.exposed_comm_ns
        total_ns["exposed_copy"] += device.exposed_copy_ns
        total_ns["idle"] += device.idle_ns
        total_ns["hidden_comm"] += device.hidden_comm_ns
        total_ns["hidden_copy"] += device.hidden_copy_ns
        total_ns.update(device.idle)

    return total_ns


LOADER: Final = "data_loading"
"""A cause of idle time besides the reasons: a thread that launches fetches a batch."""
COMPILER: Final = "compilation"
"""A cause of idle time besides the reasons: a thread that launches compiles something.
"""


class IdleReason(msgspec.Struct, frozen=True):
    """One reason why a device is idle, in words for different parts of the output.

    Its key in IDLE is its name in JSON, and the name of its color in the schemes of
    the app.
    """

    letter: str  # on the timeline
    short: str  # in a column of a table
    where: str  # in a few words
    sentence: str  # in a list of reasons
    while_: str  # at the end of a sentence
    meanwhile: str = ""  # about a rank that others waited for; "" if it is not told


IDLE: Final[dict[str, IdleReason]] = {
    # The call that launched the event at the end of the gap is not known.
    "unlinked": IdleReason(
        letter="?",
        short="launch not recorded",
        where="for an unknown reason",
        sentence="the next launch was not recorded",
        while_="for an unrecorded reason",
    ),
    # That call launched earlier events too.
    "graph": IdleReason(
        letter="g",
        short="in a graph",
        where="between graph nodes",
        sentence="between graph nodes",
        while_="between graph nodes",
    ),
    # From here on to host_nothing, the event was not launched yet. These reasons say
    # what the launching thread was doing, in the order of ThreadActivity.
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
    # The event was launched, but it had not started.
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
"""The reasons of idle time by their names in JSON. Every ns of it has one of them."""
