"""The tables and documents of `kernels` and `ops`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import Any

from msgspec.structs import asdict

from fusetui.analysis.questions.groups import KernelGroup, OpGroup
from fusetui.gpu.kernel_names import decode
from fusetui.gpu.roofline.many import DevicePeak
from fusetui.gpu.roofline.model import NS
from fusetui.gpu.roofline.peaks import BANDWIDTH, TERA
from fusetui.report.documents import (
    DeviceDocument,
    KernelDocument,
    KernelsDocument,
    OpDocument,
    OpsDocument,
)
from fusetui.report.summary import kernel_label
from fusetui.text.figures import count, duration, percent, quantity, significant
from fusetui.text.printable import printable
from fusetui.text.tables import LEAST, TOP_ALL, Column, known, left_out, table_of
from fusetui.trace.model.ids import LARGEST, device_label, exact_id, stream_label

DIGITS = 3  # of rates, which are based on estimates

OP_COLUMNS = (
    Column("total", cell=lambda group: duration(group.total_ns)),
    Column("self", spare=3, cell=lambda group: duration(group.self_ns)),
    Column("GPU", spare=1, cell=lambda group: duration(group.gpu_ns) if group.gpu_ns else ""),
    Column("kernels", spare=2, cell=lambda group: count(group.kernels) if group.kernels else ""),
    Column("count", spare=4, cell=lambda group: count(group.spread.count)),
    Column("mean", spare=5, cell=lambda group: duration(group.spread.mean_ns)),
    Column("p10", spare=8, cell=lambda group: duration(group.spread.p10_ns)),
    Column("median", spare=6, cell=lambda group: duration(group.spread.median_ns)),
    Column("p90", spare=7, cell=lambda group: duration(group.spread.p90_ns)),
)
TITLES = {"name": "kernel", "shape": "kernel, op and inputs"}
WIDEST = 60  # width that names with shapes get before figures do


def kernels_text(
    groups: Sequence[KernelGroup], by: str, top: int, width: int, notices: Iterable[str]
) -> str:
    """The first `top` groups (0: all; at least one), how many are left out, and notices about
    missing figures."""
    whole = sum(group.spread.total_ns for group in groups)
    shown = groups[:top] if top else groups
    label = Column(TITLES.get(by, by), True, cell=lambda group: _label(group.fields, by, width))
    columns = [*_kernel_columns(whole), label]
    if by == "name":
        columns.append(Column("name", True, 15, lambda group: printable(group.fields["name"])))
    rest = groups[len(shown) :]
    share = percent(sum(group.spread.total_ns for group in rest), whole)
    lines = [
        _table(columns, shown, width, by),
        *left_out(len(rest), "name" if by == "name" else "group", TOP_ALL, share),
    ]
    return "\n".join([*lines, *(fill(printable(notice), width) for notice in notices)])


def _kernel_columns(whole: int) -> tuple[Column, ...]:
    return (
        Column("total", cell=lambda group: duration(group.spread.total_ns)),
        Column("effective", spare=5, cell=_effective_text),
        Column("share", spare=2, cell=lambda group: percent(group.spread.total_ns, whole)),
        Column("count", spare=3, cell=lambda group: count(group.spread.count)),
        Column(
            "of peak",
            False,
            1,
            lambda g: known(g.work.share_of_peak, lambda of: percent(of, 1), ""),
        ),
        Column("FLOP/s", False, 12, lambda g: _rate(g.work.flop, g.work.flop_ns, "FLOP/s")),
        Column("B/s", False, 13, lambda g: _rate(g.work.bytes, g.work.bytes_ns, "B/s")),
        Column(
            "waves", False, 14, lambda g: known(g.work.waves, lambda n: significant(n, DIGITS), "")
        ),
        Column("mean", spare=6, cell=lambda group: duration(group.spread.mean_ns)),
        Column("min", spare=10, cell=lambda group: duration(group.spread.min_ns)),
        Column("p10", spare=8, cell=lambda group: duration(group.spread.p10_ns)),
        Column("median", spare=4, cell=lambda group: duration(group.spread.median_ns)),
        Column("p90", spare=7, cell=lambda group: duration(group.spread.p90_ns)),
        Column("max", spare=11, cell=lambda group: duration(group.spread.max_ns)),
    )


def ops_text(groups: Sequence[OpGroup], by: str, top: int, width: int) -> str:
    """The first `top` groups (0: all), and how many are left out."""
    if not groups:
        return "no CPU ops in this trace"
    shown = groups[:top] if top else groups
    title = "op and inputs" if by == "shape" else "op"
    columns = (*OP_COLUMNS, Column(title, True, cell=lambda group: _op_label(group.fields, by)))
    lines = left_out(len(groups) - len(shown), "name" if by == "name" else "group", TOP_ALL)
    return "\n".join([_table(columns, shown, width, by), *lines])


def kernels_json(
    groups: Sequence[KernelGroup], by: str, devices: Sequence[DevicePeak]
) -> KernelsDocument:
    return KernelsDocument(
        by=by,  # type: ignore[arg-type]  # one of arguments.KERNELS_BY
        devices=[_device(device) for device in devices],
        kernels=[_kernel_json(group) for group in groups],
    )


def ops_json(groups: Sequence[OpGroup], by: str) -> OpsDocument:
    ops = [
        OpDocument(
            **group.fields,
            **asdict(group.spread)
            | {"total_ns": group.total_ns, "self_ns": group.self_ns, "gpu_ns": group.gpu_ns},
            kernels=group.kernels,
        )
        for group in groups
    ]
    return OpsDocument(by=by, ops=ops)  # type: ignore[arg-type]  # one of arguments.OPS_BY


def _table(columns: Sequence[Column], groups: Sequence[object], width: int, by: str) -> str:
    return table_of(columns, groups, width, WIDEST if by == "shape" else LEAST, blank="")


def _label(fields: dict[str, Any], by: str, width: int) -> str:
    """The text of the last column, which the table cuts to fit."""
    if by == "name":
        return kernel_label(fields["name"], width)
    if by == "shape":
        op = _op_label({**fields, "name": fields["op"] or "no op"}, by)
        return f"{kernel_label(fields['name'], width)}   {op}"
    if by == "stream":
        return printable(f"{device_label(fields['device'])} {stream_label(fields['stream'])}")
    return printable(str(fields[by] or f"no {by}"))


def _op_label(fields: dict[str, Any], by: str) -> str:
    name = printable(fields["name"]) + (" (captured)" if fields.get("captured") else "")
    return f"{name}   {_inputs(fields)}".rstrip() if by == "shape" else name


def _inputs(fields: dict[str, Any]) -> str:
    """`[8192, 768] bf16, [768, 3072] bf16`: the inputs that have dimensions."""
    shapes, types = fields["shapes"] or [], fields["dtypes"] or []
    named = [str(types[n]) if n < len(types) else "" for n in range(len(shapes))]
    texts = [f"{s} {t}".strip() for s, t in zip(shapes, named, strict=True) if s]
    return printable(", ".join(texts))


def _effective_text(group: KernelGroup) -> str:
    ns = group.effective_ns
    return duration(ns) if ns != group.spread.total_ns else ""


def _rate(amount: int | None, ns: int, unit: str) -> str:
    return quantity(amount * NS / ns, unit, DIGITS) if amount and ns else ""


def _kernel_json(group: KernelGroup) -> KernelDocument:
    work = group.work
    amounts = {"flop": _amount(work.flop), "bytes": _amount(work.bytes)}
    decoded: dict[str, Any] = {}
    if (name := group.fields.get("name")) is not None:
        decoded = {"decoded": decode(name)}
    return KernelDocument(
        **group.fields,
        **asdict(group.spread),
        effective_ns=group.effective_ns,
        **asdict(work) | amounts,
        **decoded,
    )


def _amount(number: int | None) -> float | None:
    """Rounded to a double if it is larger than 2^53, as sums of FLOP may be."""
    return number if number is None or number <= LARGEST else float(number)


def _device(device: DevicePeak) -> DeviceDocument:
    peak = device.peak
    peaks = None if peak is None else {k: round(r * TERA) for k, r in peak.teraflops.items()}
    if peaks is not None and peak is not None and peak.bytes_per_s:
        peaks[BANDWIDTH] = round(peak.bytes_per_s)
    given = [] if peak is None else sorted(peak.given)
    return DeviceDocument(exact_id(device.device), device.name, peaks, given)
