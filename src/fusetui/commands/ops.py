"""`ops`: the CPU ops of a trace by name."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from fusetui.commands.loading import load
from fusetui.render.output import emit, emit_json, width
from fusetui.trace.questions.totals import OpTotal, op_totals


def run(args: Namespace) -> int:
    from fusetui.render.totals import ops_text

    loaded = load(args.trace)
    totals = op_totals(loaded.trace)
    if args.json:
        emit_json({"ops": [_op(total) for total in totals]})
    else:
        emit(ops_text(totals, args.top, width()))
    return loaded.code


def _op(total: OpTotal) -> dict[str, Any]:
    return {
        "name": total.name,
        "count": total.count,
        "total_ns": total.total_ns,
        "self_ns": total.self_ns,
        "gpu_ns": total.gpu_ns,
        "kernels": total.kernels,
    }
