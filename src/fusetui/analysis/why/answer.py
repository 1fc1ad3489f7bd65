"""All answers about one trace, or about a part of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from heapq import nsmallest

import msgspec

from fusetui.analysis.questions import collectives, memory
from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.causes import module_text
from fusetui.analysis.why.cpu_work import cpu_work
from fusetui.analysis.why.engine import answer_early, findings_of
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import Kernels, by_text
from fusetui.analysis.why.model import (
    LISTED_DEVICE,
    Breakdown,
    CpuWork,
    Share,
    Unknown,
    Why,
)
from fusetui.analysis.why.needs import lacks_of
from fusetui.analysis.why.selection import (
    Question,
    Selection,
    account_of,
    asked,
    on_this_device,
)
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.gpu.roofline import many
from fusetui.text.printable import printable
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import Arguments, digest, joined, parted
from fusetui.trace.program import backward
from fusetui.trace.program.modules import Modules, module_times
from fusetui.trace.read.elements import StretchArgs
from fusetui.trace.read.reread import Reread
from fusetui.trace.read.threads import in_threads


def why(trace: Trace, selection: Selection | None = None) -> Why:
    """The account, the gaps, the ceiling, the modules and the findings. Raises
    NoSuchSelectionError."""
    return explained(asked(Accounts(trace), selection))[0]


def explained(question: Question) -> tuple[Why, Facts]:
    """All answers, and what was computed for them."""
    with args_read(question.accounts.trace):
        found = account_of(question)
        facts = Facts(question.accounts, question.lines, question.window)
        answer_early(facts)
    lacks = lacks_of(facts)
    findings, wanted, unknown, below = findings_of(facts)
    modules = module_times(facts.kernels.origins) if question.is_whole else None
    answers = msgspec.structs.replace(
        found,
        findings=findings,
        _wanted=wanted,
        cannot_tell=on_this_device(
            facts.trace,
            (*found.cannot_tell, *_without_ceiling(facts.kernels, lacks), *unknown),
        ),
        ceiling=facts.kernels.ceiling if found.devices else None,
        modules=modules.modules if modules else None,
        _module_times=modules,
        _breakdown=breakdown_of(facts.kernels, modules) if found.devices else None,
        cpu_work=None if found.devices else _cpu_work(facts),
        _families=facts.kernels.family_ns,
        _below=below,
        _left_out=int(facts.steady is not facts),
        _lacks=lacks,
    )
    return answers, facts


def _cpu_work(facts: Facts) -> CpuWork:
    return cpu_work(facts.accounts, facts.whole)


def _without_ceiling(kernels: Kernels, lacks: dict[str, str]) -> list[Unknown]:
    """Why no ceiling is known: CPU ops are missing, else input shapes; and whether the
    device is none of the table of peaks. `lacks`: see needs.lacks_of."""
    if not kernels.is_kernel.any():
        return []
    some_have_ops = (kernels.trace.op[kernels.rows] >= 0).any()
    lacking = []
    if "CPU ops" in lacks:
        lacking.append("CPU ops")
    elif some_have_ops and "input shapes" in lacks:
        lacking.append("input shapes")
    if LISTED_DEVICE in lacks:
        lacking.append(LISTED_DEVICE)
    return [Unknown("ceiling", what, lacks[what]) for what in lacking]


MAX_SHARES = 10
"""Of kernels, and of modules, in a breakdown."""

MAX_NAME_CHARACTERS = 1000


def breakdown_of(kernels: Kernels, modules: Modules | None) -> Breakdown:
    """The kernels with the longest effective time, and the modules with the longest
    time of their own, each kind of module once."""
    is_kernel = kernels.is_kernel
    by_kernel = by_text(
        kernels.trace, kernels.rows[is_kernel], kernels.effective_ns[is_kernel], _short
    )
    by_module: dict[str, tuple[int, int]] = {}  # count, ns
    for module in modules.modules if modules else ():
        name = module_text(module.module.removesuffix("_*"), MAX_NAME_CHARACTERS)
        count, ns = by_module.get(name, (0, 0))
        by_module[name] = (count + module.count, ns + module.gpu_self_ns)
    return Breakdown(
        kernels=_longest(by_kernel),
        kernels_ns=kernels.ns(is_kernel),
        modules=_longest(by_module),
        modules_ns=modules.gpu_ns if modules else 0,
    )


def _short(name: str) -> str:
    kernel = role_of_kernel(name).decoded
    return kernel.short if kernel else name[:MAX_NAME_CHARACTERS]


def _longest(count_and_ns_of: dict[str, tuple[int, int]]) -> tuple[Share, ...]:
    """The MAX_SHARES names with the most time, in this order; a trace may have a
    million names, so the others are never sorted."""

    def order(item: tuple[str, tuple[int, int]]) -> tuple[int, str]:
        name, (_, ns) = item
        return -ns, name

    longest = nsmallest(MAX_SHARES, count_and_ns_of.items(), key=order)
    return tuple(
        Share(name=printable(name), count=count, ns=ns)
        for name, (count, ns) in longest
        if ns
    )


MIN_BYTES_FOR_THREADS = 32 << 20


@contextmanager
def args_read(trace: Trace) -> Iterator[None]:
    """At the end, the args of all kernels, of their ops and of collectives, the most
    memory that torch used, and the sequence numbers of ops if any may have run
    backward, are kept with the events: `many.jobs`, `collectives_on_gpu`,
    `memory_peaks` and `backward_ops` find them there."""
    events, rows = trace.elements, trace.rows_of(Role.KERNEL)
    if not len(rows) or events.recall(many.KEPT_AS, Arguments) is not None:
        yield
        return
    events.warm()  # once, before several threads need it
    numbered = backward.may_run_backward(trace)
    several = {
        many.KEPT_AS: joined(many.args_asked(trace, rows)),
        collectives.KEPT_AS: collectives.args_asked(trace),
    }
    asked = {name: question for name, question in several.items() if len(question[0])}
    again = Reread(events, *joined(list(asked.values())), numbered)

    def args_and_peaks(stretch: int) -> tuple[StretchArgs, memory.StretchPeaks]:
        part = again.part(stretch)
        return part._replace(totals=None), memory.peaks_in(events, stretch, part.totals)

    size = sum(stretch.end - stretch.start for stretch in events.stretches)
    is_large = size >= MIN_BYTES_FOR_THREADS
    with in_threads(args_and_peaks, again.stretches, is_large) as wait_for_results:
        yield
        results = wait_for_results()
    parts = [part for part, _ in results]
    peaks = [peak for _, peak in results]
    each = parted(again.args(parts), list(asked.values()))
    for (name, question), args in zip(asked.items(), each, strict=True):
        events.keep(name, msgspec.structs.replace(args, asked=digest(*question)))
    events.keep(memory.KEPT_AS, memory.peaks_of(peaks))
    if numbered:
        events.keep(backward.KEPT_AS, again.autograd(parts))
