"""`summary`, `kernels` and `ops`: the figures of one trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusetui.commands.errors import say
from fusetui.commands.loading import load, secret_notices
from fusetui.render.output import emit, emit_json, width
from fusetui.trace import Trace
from fusetui.trace import summary as figures_of
from fusetui.trace.questions.totals import kernel_totals, op_totals


def summary(name: str, as_json: bool) -> int:
    loaded = load(name)
    for sentence in secret_notices(loaded.trace):
        say(sentence)
    figures = figures_of(loaded.trace)
    if as_json:
        emit_json(figures)
    else:
        emit(_summary_text(loaded.trace, figures))
    return loaded.code


def _summary_text(trace: Trace, figures: dict[str, Any]) -> str:
    """Its imports explain kernel names: those who want JSON do not wait for them."""
    from fusetui.render.summary import summary_text

    return summary_text(figures, kernel_totals(trace), op_totals(trace), width())


def kernels(name: str, as_json: bool, top: int, by: str, peaks: Sequence[str]) -> int:
    from fusetui.commands.peaks import given_peaks, notices
    from fusetui.render.groups import kernels_json, kernels_text
    from fusetui.trace.questions.kernel_groups import kernel_groups
    from fusetui.trace.roofline.many import jobs, peaks_of_devices

    given = given_peaks(peaks)
    loaded = load(name)
    known = jobs(loaded.trace, given=given)
    groups = kernel_groups(loaded.trace, known, by)
    if as_json:
        emit_json(kernels_json(groups, by, peaks_of_devices(loaded.trace, given)))
    else:
        emit(kernels_text(groups, by, top, width(), notices(loaded.trace, known, given)))
    return loaded.code


def ops(name: str, as_json: bool, top: int, by: str) -> int:
    from fusetui.render.groups import ops_json, ops_text
    from fusetui.trace.questions.op_groups import op_groups

    loaded = load(name)
    groups = op_groups(loaded.trace, by)
    emit_json(ops_json(groups, by)) if as_json else emit(ops_text(groups, by, top, width()))
    return loaded.code
