"""`kernels`: the kernels of a trace, grouped by name, op, shape and so on."""

from __future__ import annotations

from argparse import Namespace
from textwrap import wrap

from fusetui.commands.loading import load
from fusetui.report.note import emit_json_of, emit_of
from fusetui.report.output import width


def run(args: Namespace) -> int:
    from fusetui.analysis.questions.kernel_groups import kernel_groups
    from fusetui.analysis.questions.search import why_no_kernels
    from fusetui.commands.peaks import given_peaks, notices, with_device
    from fusetui.gpu.roofline.many import jobs, peaks_of_devices
    from fusetui.report.groups import kernels_json, kernels_text

    given = given_peaks(args.peak)
    loaded = load(args.trace, args.captured_by)
    trace = with_device(loaded.trace, args.device)
    known = jobs(trace, given=given)
    groups = kernel_groups(trace, known, args.by)
    if args.json:
        emit_json_of(trace, kernels_json(groups, args.by, peaks_of_devices(trace, given)))
    elif not groups:
        emit_of(trace, "\n".join(wrap(why_no_kernels(trace), width())))
    else:
        said = notices(trace, known, given)
        emit_of(trace, kernels_text(groups, args.by, args.top, width(), said))
    return loaded.code
