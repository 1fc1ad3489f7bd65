"""The records of a diff: its rows, the change of the step, and terms that add up to
it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from fusetui.trace.layout.steps import StepLength

CPU = "CPU: "
"""The `op` of a row of dispatch begins with it."""

REPEATED = "repeated blocks"
"""The `work` of a row about layers that only one side has; its `op` says how many."""

ELSEWHERE = "in another place or on another stream"
"""The `why` of work that moved."""

ONLY = "only in step"
"""The `why` of a row about one step alone begins with it."""


class RowKind(StrEnum):
    """How a piece of work changed from A to B."""

    SAME = "same"  # the same kernel; that its time changed cannot be told from noise
    FASTER = "faster"  # the same kernel, beyond noise
    SLOWER = "slower"
    # the same kernel under the same op, at another place or on another stream
    MOVED = "moved"
    REPLACED = "replaced"  # another kernel does the work
    FUSED = "fused"  # one kernel does the work of several
    SPLIT = "split"  # several kernels do the work of one
    ADDED = "added"
    REMOVED = "removed"


class StepChange(msgspec.Struct, frozen=True):
    """How much longer a step of B takes than a step of A.

    The ratio is that of the medians less interruptions. Where the steps of both sides
    took turns, it is the middle of the ratios of neighbors.
    """

    a_ns: int | None  # the median time of a step; None for a side without any work
    b_ns: int | None
    ratio: float | None  # b / a: below 1 means that B is faster
    # The interval of 95 % of the ratio within these two runs; None with too few steps.
    low: float | None
    high: float | None
    # How much longer the last step of a run took than its first, as a share of a step;
    # 0 where that may be chance.
    drift_a: float = 0.0
    drift_b: float = 0.0
    turns: bool = False  # the steps of both took turns, so that each has a neighbor
    # The share of the time in which pieces of work took far longer than they usually
    # do.
    interrupted_a: float = 0.0
    interrupted_b: float = 0.0
    length_a: StepLength = StepLength.WALL  # what `a_ns` and `b_ns` are
    length_b: StepLength = StepLength.WALL

    @property
    def change_ns(self) -> int:
        """How much longer the median step of B takes; a side without steps takes 0."""
        return (self.b_ns or 0) - (self.a_ns or 0)

    @property
    def is_opposed(self) -> bool:
        """Whether ratio and medians disagree about which side is faster."""
        return self.ratio is not None and (self.ratio - 1) * self.change_ns < 0

    @property
    def shown(self) -> bool:
        """Whether the difference is more than noise: its interval excludes 1."""
        if self.low is None or self.high is None:
            return False
        return self.low > 1 or self.high < 1


class Answer(StrEnum):
    """Whether B is faster than A."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference"  # that would be more than noise
    CANNOT_TELL = "cannot tell"


class Verdict(msgspec.Struct, frozen=True):
    """Whether B is faster than A, and why that cannot be told."""

    answer: Answer
    reason: str | None = None  # of CANNOT_TELL, why; None with every other answer


class Row(msgspec.Struct, frozen=True):
    """One piece of work, or several that belong together, on both sides.

    Times are ns per step, counts are events per step. Only rows with `counts` are part
    of the sum that explains the step: dispatch on the CPU of a GPU program is shown,
    but overlaps the work of the GPU.
    """

    kind: RowKind
    op: str  # what the program called it; "" when unknown; dispatch starts with "CPU: "
    a: tuple[str, ...]  # names of kernels, or of ops in traces without a GPU
    b: tuple[str, ...]
    a_ns: int  # the mean over the usual steps, which adds up
    b_ns: int
    a_count: int
    b_count: int
    why: str
    where: str = ""  # the module or annotation around it
    counts: bool = True
    a_median_ns: int = 0  # the median over all steps
    b_median_ns: int = 0
    phase: str = ""  # forward, backward or optimizer, in a step of training
    work: str = ""  # the sort of work: GEMM, copy, communication, ...
    # the sides, `a` or `b` or `ab`, whose kernels a compiled region launched
    compiled: str = ""
    # of communication and copies: the time during which kernels computed
    a_hidden_ns: int = 0
    b_hidden_ns: int = 0
    # matched as a whole: which kernel does the work of which is unknown
    together: bool = False
    a_rows: tuple[int, ...] = ()  # rows of the trace, in the representative step of A
    b_rows: tuple[int, ...] = ()

    @property
    def change_ns(self) -> int:
        """How much longer it takes in B."""
        return self.b_ns - self.a_ns

    @property
    def hidden_change_ns(self) -> int:
        """How much more of its time is hidden behind compute in B."""
        return self.b_hidden_ns - self.a_hidden_ns

    @property
    def on_cpu(self) -> bool:
        """Whether it is dispatch: CPU time around the work, not the work itself."""
        return self.op.startswith(CPU)


class RowShare(msgspec.Struct, frozen=True):
    """What one side has of a row; see the fields of `Row` that begin with `a_`."""

    names: Sequence[str] = ()
    ns: int = 0
    count: int = 0
    median_ns: int = 0
    rows: tuple[int, ...] = ()
    hidden_ns: int = 0


def make_row(
    *,
    kind: RowKind,
    op: str,
    a: RowShare,
    b: RowShare,
    why: str,
    counts: bool = True,
    together: bool = False,
    where: str = "",
    phase: str = "",
    work: str = "",
    compiled: str = "",
) -> Row:
    """Make a row from what A and B have of it.

    All other arguments are fields of `Row`.
    """
    return Row(
        kind=kind,
        op=op,
        a=tuple(a.names),
        b=tuple(b.names),
        a_ns=a.ns,
        b_ns=b.ns,
        a_count=a.count,
        b_count=b.count,
        why=why,
        where=where,
        counts=counts,
        a_median_ns=a.median_ns,
        b_median_ns=b.median_ns,
        phase=phase,
        work=work,
        compiled=compiled,
        a_hidden_ns=a.hidden_ns,
        b_hidden_ns=b.hidden_ns,
        together=together,
        a_rows=a.rows,
        b_rows=b.rows,
    )


class DiffSide(msgspec.Struct, frozen=True):
    """The figures of one of the two traces: means over its usual steps, in ns.

    The step is work_ns + dispatch_ns + earlier_ns - later_ns - overlap_ns + idle_ns,
    exactly.
    """

    label: str
    gpu: bool  # its work is GPU events; else CPU ops
    devices: tuple[str, ...]  # names of the GPUs used, where the file says
    steps: int  # that were used
    items: int  # pieces of work in a step
    work_ns: int  # the sum of the pieces
    # the part of the step during which any GPU event runs, or any CPU op without a GPU
    busy_ns: int
    idle_ns: int  # the rest of the step: see busy.measure_any_busy_ns
    cpu_ns: int  # the part of the step during which any CPU op or runtime call ran
    # of CPU ops that compute nothing, where they are part of the sum
    dispatch_ns: int = 0
    overlap_ns: int = 0  # of the work that ran while other work did
    later_ns: int = 0  # of the step's own work that ran after its end
    earlier_ns: int = 0  # of work that ran in the step, but that no call in it launched
    odd_ns: int = 0  # how much steps with unusual work move the median step
    # the steps averaged over, counted from 0 among those used
    usual: tuple[int, ...] = ()
    idle: dict[str, int] = msgspec.field(default_factory=dict)
    """{cause: ns} of idle_ns, which they add up to; see causes.idle_by_cause. Only of
    GPUs."""


class Accounting(msgspec.Struct, frozen=True):
    """The change of the step as a sum of changes, B minus A, in ns.

    `step_ns` is exactly the sum of all others. Each of them is how much longer it makes
    the step, so more overlap is negative. What is not explained is the difference
    between the median step and the mean of the usual steps.
    """

    step_ns: int
    rows_ns: int
    idle_ns: int
    not_explained_ns: int
    overlap_ns: int = 0
    later_ns: int = 0
    earlier_ns: int = 0
    odd_ns: int = 0


class Subtotal(msgspec.Struct, frozen=True):
    """A part of the step on both sides; all parts add up to the step."""

    name: str
    phase: str
    a_ns: int
    b_ns: int
    a_count: int
    b_count: int
    # the sides, `a` or `b` or `ab`, on which torch.compile made its kernels
    compiled: str = ""

    @property
    def change_ns(self) -> int:
        """How much longer it takes in B."""
        return self.b_ns - self.a_ns


class Diff(msgspec.Struct, frozen=True):
    """B compared with A."""

    a: str
    b: str
    step: StepChange
    verdict: Verdict
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    accounting: Accounting
    side_a: DiffSide
    side_b: DiffSide
    story: str = ""  # one sentence: the largest terms of the change
    # the rows of the sum by sort of work, and by place
    by_work: tuple[Subtotal, ...] = ()
    by_place: tuple[Subtotal, ...] = ()
