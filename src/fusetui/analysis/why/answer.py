"""Build the whole answer of `why` about a trace, or about a part of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from heapq import nsmallest
from typing import NamedTuple

import msgspec

from fusetui.analysis.questions import collectives, memory
from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.causes import format_module
from fusetui.analysis.why.cpu_work import summarize_cpu_work
from fusetui.analysis.why.engine import collect_findings, run_rules_of_columns
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import NO_TIME, Kernels, Total, add_up_by_text
from fusetui.analysis.why.model import (
    LISTED_DEVICE,
    Breakdown,
    Share,
    Unknown,
    Why,
)
from fusetui.analysis.why.needs import list_lacks
from fusetui.analysis.why.selection import (
    Question,
    Selection,
    account_for_question,
    resolve_selection,
    word_for_recorder,
)
from fusetui.gpu.kernel_names import decode
from fusetui.gpu.roofline import many
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import NO_ROW, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import (
    ArgsQuestion,
    Arguments,
    Events,
    digest,
    joined,
    parted,
)
from fusetui.trace.program import backward
from fusetui.trace.program.modules import Modules, module_times
from fusetui.trace.read.elements import StretchArgs
from fusetui.trace.read.reread import Reread
from fusetui.trace.read.threads import in_threads


def why(trace: Trace, selection: Selection | None = None) -> Why:
    """Answer why a trace takes as long as it does.

    The answers have the account of each device, its idle gaps, what better kernels
    could save, the times of modules, and the findings.

    Args:
        trace: The trace.
        selection: The part that is asked about; None for all of it.

    Raises:
        NoSuchSelectionError: The trace has no such part.
    """
    question = resolve_selection(Accounts(trace), selection)
    answers, _ = answer_question(question)
    return answers


def answer_question(question: Question) -> tuple[Why, Facts]:
    """Answer a question, and return the facts that were computed for the answers.

    The app goes on to use the facts.
    """
    # The account and the rules that need only columns run while threads read the file.
    with read_args_meanwhile(question.accounts.trace):
        account = account_for_question(question)
        facts = Facts(question.accounts, question.devices_by_axis, question.window)
        run_rules_of_columns(facts)

    kernels = facts.kernels
    lacks = list_lacks(facts)
    rules = collect_findings(facts)
    modules = module_times(kernels.origins) if question.is_whole else None
    unknown = [
        *account.cannot_tell,
        *_explain_missing_ceiling(kernels, lacks),
        *rules.unknown,
    ]
    has_devices = bool(account.devices)
    left_out_steps = 0 if facts.steady_facts is facts else 1
    answers = msgspec.structs.replace(
        account,
        findings=rules.findings,
        _wanted=rules.wanted,
        cannot_tell=word_for_recorder(facts.trace, unknown),
        ceiling=kernels.ceiling if has_devices else None,
        modules=modules.modules if modules else None,
        _module_times=modules,
        _breakdown=break_down_gpu_time(kernels, modules) if has_devices else None,
        cpu_work=None
        if has_devices
        else summarize_cpu_work(facts.accounts, facts.whole_time),
        _families=kernels.ns_of_family,
        _below=rules.below,
        _left_out=left_out_steps,
        _lacks=lacks,
    )

    return answers, facts


def _explain_missing_ceiling(kernels: Kernels, lacks: dict[str, str]) -> list[Unknown]:
    """Say why the ceiling is not known, or is not compared with the data sheet.

    The ceiling is what better kernels could save. It needs CPU ops and their input
    shapes, of which the first one that is missing is named. The device may also be
    absent from the table of peak rates.

    Args:
        lacks: What was not recorded, and which option records it; see `list_lacks`.
    """
    if not kernels.is_kernel.any():
        return []

    has_op = kernels.trace.op[kernels.rows] != NO_ROW
    missing = []
    if "CPU ops" in lacks:
        missing.append("CPU ops")
    elif has_op.any() and "input shapes" in lacks:
        missing.append("input shapes")

    if LISTED_DEVICE in lacks:
        missing.append(LISTED_DEVICE)
    return [Unknown("ceiling", need, lacks[need]) for need in missing]


MAX_SHARES = 10
"""How many kernels and how many modules a breakdown lists."""

MAX_NAME_CHARACTERS = 1000


def break_down_gpu_time(kernels: Kernels, modules: Modules | None) -> Breakdown:
    """List the kernels and the types of modules with the longest times.

    Of kernels the effective time counts, and of modules the time of their own.

    Args:
        modules: The times of all modules; None to list none.
    """
    is_kernel = kernels.is_kernel
    by_kernel = add_up_by_text(
        kernels.trace,
        kernels.rows[is_kernel],
        kernels.effective_ns[is_kernel],
        _shorten_kernel_name,
    )
    return Breakdown(
        kernels=_choose_longest_names(by_kernel),
        kernels_ns=kernels.add_up_ns(is_kernel),
        modules=_choose_longest_names(_add_up_classes(modules)) if modules else (),
        modules_ns=modules.gpu_ns if modules else 0,
    )


def _add_up_classes(modules: Modules) -> dict[str, Total]:
    """Return for each class of module the number of calls and their own GPU time (ns)."""
    total_of_class: dict[str, Total] = {}
    for module in modules.modules:
        name = format_module(module.module.removesuffix("_*"), MAX_NAME_CHARACTERS)
        so_far = total_of_class.get(name, NO_TIME)
        total_of_class[name] = so_far.add(
            occurrences=module.count, ns=module.gpu_self_ns
        )

    return total_of_class


def _shorten_kernel_name(name: str) -> str:
    """Return the short name of a kernel, or the begin of a name that is not recognized."""
    kernel = decode(name)
    return kernel.short if kernel else name[:MAX_NAME_CHARACTERS]


def _choose_longest_names(total_of_name: dict[str, Total]) -> tuple[Share, ...]:
    """Return the MAX_SHARES names with the most time, in this order, without zeros.

    A trace may have a million names, so the others are never sorted.

    Args:
        total_of_name: How often each name occurs, and its time.
    """

    def by_time(name: str) -> tuple[int, str]:
        return -total_of_name[name].ns, name

    shares = []
    for name in nsmallest(MAX_SHARES, total_of_name, key=by_time):
        total = total_of_name[name]
        if total.ns:
            share = Share(name=printable(name), count=total.occurrences, ns=total.ns)
            shares.append(share)

    return tuple(shares)


MIN_BYTES_FOR_THREADS = 32 << 20
"""From this size of the document on, several threads read it a second time."""


class _RereadStretch(NamedTuple):
    """What one pass over a stretch of the document gave."""

    args: StretchArgs
    """Without the totals of memory, which are in `peaks`."""
    peaks: memory.StretchPeaks


@contextmanager
def read_args_meanwhile(trace: Trace) -> Iterator[None]:
    """Read the document a second time while the block runs.

    A trace keeps columns, not the args of its events. What several answers need of the
    args is read here in one pass, in threads if the document is large, while the block
    computes what needs only columns. At the end of the block it is kept with the
    events: the args of all kernels, of their ops and of collectives, the most memory
    that torch used, and the sequence numbers of ops if any may have run backward.
    `many.jobs`, `find_gpu_collectives`, `find_memory_peaks` and `backward_ops` take them from
    there.

    Does nothing without kernels, or if the args were read already.
    """
    events = trace.elements
    kernels = trace.rows_of(Role.KERNEL)
    if not len(kernels) or events.recall(many.KEPT_AS, Arguments) is not None:
        yield
        return

    events.warm()  # once, before several threads need it
    questions = _list_args_questions(trace, kernels)
    orders, names = joined(list(questions.values()))
    may_run_backward = backward.may_run_backward(trace)
    reread = Reread(events, orders, names, may_run_backward)

    read_stretch = partial(_read_stretch, events, reread)
    is_large = _measure_document(events) >= MIN_BYTES_FOR_THREADS
    with in_threads(read_stretch, reread.stretches, is_large) as wait_for_results:
        yield
        stretches = wait_for_results()

    args_of_stretches = [stretch.args for stretch in stretches]
    peaks_of_stretches = [stretch.peaks for stretch in stretches]
    _keep_args(events, questions, reread.args(args_of_stretches))
    events.keep(memory.KEPT_AS, memory.combine_peaks(peaks_of_stretches))
    if may_run_backward:
        events.keep(backward.KEPT_AS, reread.autograd(args_of_stretches))


def _read_stretch(events: Events, reread: Reread, number: int) -> _RereadStretch:
    """Read the wanted args of one stretch of the document, by its number."""
    args = reread.part(number)
    peaks = memory.find_peaks_in_stretch(events, number, args.totals)
    without_totals = args._replace(totals=None)  # large, and not needed any more
    return _RereadStretch(args=without_totals, peaks=peaks)


def _list_args_questions(trace: Trace, kernels: Rows) -> dict[str, ArgsQuestion]:
    """List which args of which events are to be read from the document.

    The args are the details of an event, such as its input shapes. Each question has
    the positions of the events and the names of the args. Its key is the name under
    which the answer is kept. A question about no event is left out.
    """
    questions = {
        many.KEPT_AS: joined(many.make_args_questions(trace, kernels)),
        collectives.KEPT_AS: collectives.args_to_read(trace),
    }
    with_events = {}
    for name, question in questions.items():
        orders, _ = question
        if len(orders):
            with_events[name] = question

    return with_events


def _measure_document(events: Events) -> int:
    """Return the length of the stretches of the document together, in bytes."""
    return sum(stretch.end - stretch.start for stretch in events.stretches)


def _keep_args(
    events: Events, questions: dict[str, ArgsQuestion], all_args: Arguments
) -> None:
    """Keep the answer to each question with the events, with the question's digest.

    Args:
        all_args: The answers to all questions together, as they were joined.
    """
    answers = parted(all_args, list(questions.values()))
    for kept_as, answer in zip(questions, answers, strict=True):
        orders, arg_names = questions[kept_as]
        with_digest = msgspec.structs.replace(answer, asked=digest(orders, arg_names))
        events.keep(kept_as, with_digest)
