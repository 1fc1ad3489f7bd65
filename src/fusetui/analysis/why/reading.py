"""Reads at once what the findings need of the args, while the account is worked out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fusetui.analysis.questions import memory
from fusetui.gpu.roofline import many
from fusetui.trace.model.arguments import KeptArguments, joined
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.program import backward
from fusetui.trace.read.reread import Aside, Reread, StretchArgs

WORTH_A_PROCESS = 32 << 20  # bytes to decode


@contextmanager
def args_read(trace: Trace) -> Iterator[None]:
    """At the end, the args of all kernels and their ops, the most memory that torch used, and the
    sequence numbers of ops if any may have run backward, are kept with the events: `many.jobs`,
    `memory.memory_peaks` and `backward.backward_ops` find them there."""
    events, rows = trace.elements, trace.rows_of(Role.KERNEL)
    if not len(rows) or events.recall(many.KEPT_AS, KeptArguments) is not None:
        yield
        return
    events.warm()  # once for both processes
    numbered = backward.may_run_backward(trace)
    again = Reread(events, *joined(many.args_asked(trace, rows)), numbered)

    def both(stretch: int) -> tuple[StretchArgs, memory.StretchPeaks]:
        return again.part(stretch), memory.peaks_in(events, stretch)

    size = sum(stretch.end - stretch.start for stretch in events.stretches)
    with Aside(again.stretches, both, size >= WORTH_A_PROCESS) as aside:
        yield
        found = aside.results()
    parts, peaks = zip(*(found[stretch] for stretch in range(again.stretches)), strict=True)
    events.keep(many.KEPT_AS, again.args(parts))
    events.keep(memory.KEPT_AS, memory.peaks_of(peaks))
    if numbered:
        events.keep(backward.KEPT_AS, again.autograd(parts))
