"""The rule fusable-run: pointwise kernels that a single kernel could replace."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.analysis.why.causes import format_module
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernel_runs import (
    MIN_FUSED_NS,
    Runs,
    find_fusable_runs,
    is_pointwise,
)
from fusetui.analysis.why.kernels import Kernels, add_up_by_text, choose_heaviest_rows
from fusetui.analysis.why.rule import (
    CannotTellError,
    Claim,
    Rule,
    format_share_of_work,
    is_large_enough,
)
from fusetui.text.figures import count, plural
from fusetui.trace.model.arrays import NO_ROW, Flags, inside_ranges

__all__ = ["find_fusable_runs", "fusable_run"]


@Rule(
    needs=("CPU ops", "annotations", "Python frames and modules"),
    remedy="Use {compile:torch.compile, which fuses such runs, or }a fused norm, "
    "activation or rotary embedding.",
    thresholds={"shortest_ns": MIN_FUSED_NS},
    of_kernels=True,
)
def fusable_run(facts: Facts) -> Iterator[Claim]:
    """Report runs of pointwise kernels whose work one kernel could do.

    At stake is the traffic between them where shapes and bandwidth are known. Otherwise
    it is a note, if the runs take long enough.

    Raises:
        CannotTellError: There are neither modules nor annotations.
    """
    kernels = facts.kernels
    if not kernels.match_names(is_pointwise).any():
        return
    has_module = kernels.module_row != NO_ROW
    if not has_module.any():
        option = "with_stack=True or record_function"
        if facts.has_stacks:
            option = "record_function"
        raise CannotTellError("modules or annotations", option)

    runs = find_fusable_runs(kernels)
    if not len(runs.ns):
        return

    text = _describe_runs(facts, runs)
    first_kernels = kernels.rows[kernels.stream_order[runs.begin]]
    if runs.is_known:
        saved_ns = int(runs.saved_ns.sum())
        yield Claim(
            text=f"{text}. One fused kernel per run would save at most "
            f"{format_share_of_work(facts, saved_ns)}: it must still read the first "
            "inputs and write the last output.",
            at_stake_ns=saved_ns,
            wanted="fuse",
            rows=choose_heaviest_rows(first_kernels, runs.saved_ns),
            kernels=_mark_kernels_of_runs(kernels, runs),
            why_likely="A fused kernel must also read the other inputs of a run and "
            "write results that later work uses.",
        )
    elif is_large_enough(facts, int(runs.ns.sum()), of_kernels=True):
        yield Claim(
            text=f"{text}. {_explain_unknown_gain(kernels, runs)}",
            rows=choose_heaviest_rows(first_kernels, runs.ns),
        )


def _mark_kernels_of_runs(kernels: Kernels, runs: Runs) -> Flags:
    """Tell which kernels are in any of some runs; one flag per kernel."""
    kernel_count = len(kernels.rows)
    is_inside = np.zeros(kernel_count, dtype=np.bool_)
    is_inside[kernels.stream_order] = inside_ranges(runs.begin, runs.end, kernel_count)
    return is_inside


def _describe_runs(facts: Facts, runs: Runs) -> str:
    """Describe some runs of kernels: their number, their time and the module with most
    of it.

    An example is `12 runs of consecutive pointwise kernels (48 kernels) take 3 ms (5 %
    of the span), most of it in RMSNorm`. No module is named if none takes more than
    half.
    """
    taken_ns = int(runs.ns.sum())
    runs_text = plural(len(runs.ns), "run")
    kernels_inside = int((runs.end - runs.begin).sum())
    takes = "takes" if len(runs.ns) == 1 else "take"
    text = (
        f"{runs_text} of consecutive pointwise kernels ({count(kernels_inside)} "
        f"kernels) {takes} {format_share_of_work(facts, taken_ns)}"
    )

    modules = add_up_by_text(facts.trace, runs.module, runs.ns, format_module)
    for module, total in modules.items():
        if 2 * total.ns > taken_ns:
            text += f", most of it in {module}"

    return text


def _explain_unknown_gain(kernels: Kernels, runs: Runs) -> str:
    """Say what it takes to know what one kernel for each run would save, in a sentence."""
    if runs.are_chains:
        missing = "shapes" if kernels.peak else "a device whose bandwidth is known"
        return (
            "Each run could be one fused kernel; the gain is unknown without "
            f"{missing}."
        )
    return (
        "Without shapes, fusetui cannot determine which of them share data, or the "
        "gain from fusing them."
    )
