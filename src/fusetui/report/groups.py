"""The tables and documents of `kernels` and `ops`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from textwrap import fill
from typing import Any, Literal

import msgspec
from msgspec.structs import asdict, replace

from fusetui.analysis.questions.groups import KernelGroup, OpGroup
from fusetui.gpu.kernel_names import decode
from fusetui.gpu.roofline.inputs import NS
from fusetui.gpu.roofline.many import DevicePeak
from fusetui.gpu.roofline.peaks import BANDWIDTH, TERA
from fusetui.report.summary import OP_COLUMNS, kernel_label
from fusetui.text.figures import count, duration, percent, quantity, significant
from fusetui.text.printable import printable
from fusetui.text.tables import (
    MIN_LAST_COLUMN_CELLS,
    Column,
    text_or_dash,
    times,
    top_table,
)
from fusetui.trace.model.ids import Id, device_label, exact_id, stream_label

DIGITS = 3  # of rates, which are based on estimates


class DeviceDocument(msgspec.Struct, frozen=True):
    """A device with its peaks by kind, per second: FLOP, and bytes of `bandwidth`."""

    device: Id
    name: str | None
    peaks: dict[str, int] | None
    given: list[str]


class KernelsDocument(msgspec.Struct, frozen=True):
    """`kernels`."""

    by: Literal["name", "op", "shape", "module", "family", "stream", "step"]
    devices: list[DeviceDocument]
    kernels: list[KernelGroup]


class OpsDocument(msgspec.Struct, frozen=True):
    """`ops`."""

    by: Literal["name", "shape"]
    ops: Sequence[OpGroup]


WIDEST = 60  # width that names with shapes get before figures do


def kernels_text(
    groups: Sequence[KernelGroup], by: str, top: int, width: int, notices: Iterable[str]
) -> str:
    """The first `top` groups (0: all; at least one), how many are left out, and notices
    about missing figures."""
    whole = sum(group.total_ns for group in groups)
    title = {"name": "kernel", "shape": "kernel, op and inputs"}.get(by, by)
    columns = [
        *times(total=0),
        Column(
            "effective",
            spare=5,  # where it differs from the total
            cell=lambda g: (
                duration(g.effective_ns) if g.effective_ns != g.total_ns else ""
            ),
        ),
        Column("share", spare=2, cell=lambda group: percent(group.total_ns, whole)),
        Column("count", spare=3, cell=lambda group: count(group.count)),
        Column(
            "of peak",
            spare=1,
            cell=lambda g: text_or_dash(g.share_of_peak, lambda n: percent(n, 1), ""),
        ),
        Column("FLOP/s", spare=12, cell=lambda g: _rate(g.flop, g.flop_ns, "FLOP/s")),
        Column("B/s", spare=13, cell=lambda g: _rate(g.bytes, g.bytes_ns, "B/s")),
        Column(
            "waves",
            False,
            14,
            lambda g: text_or_dash(g.waves, lambda n: significant(n, DIGITS), ""),
        ),
        *times(mean=6, min=10, p10=8, median=4, p90=7, max=11),
        Column(title, True, cell=lambda group: _label(group, by, width)),
    ]
    if by == "name":
        columns.append(Column("name", True, 15, lambda group: printable(group.name)))
    left = sum(group.total_ns for group in groups[top:]) if top else 0
    shown = _table(columns, groups, top, width, by, percent(left, whole))
    return "\n".join([shown, *(fill(printable(notice), width) for notice in notices)])


def ops_text(groups: Sequence[OpGroup], by: str, top: int, width: int) -> str:
    """The first `top` groups (0: all), and how many are left out."""
    if not groups:
        return "no CPU ops in this trace"
    title = "op and inputs" if by == "shape" else "op"
    label = Column(
        title, True, cell=lambda group: _op_label(asdict(group), group.name, by)
    )
    spread = times(mean=5, p10=8, median=6, p90=7)
    return _table((*OP_COLUMNS, *spread, label), groups, top, width, by)


def kernels_json(
    groups: Sequence[KernelGroup], by: str, devices: Sequence[DevicePeak]
) -> KernelsDocument:
    return KernelsDocument(
        by=by,  # type: ignore[arg-type]  # one of arguments.KERNELS_BY
        devices=[_device(device) for device in devices],
        kernels=[
            replace(one, decoded=decode(one.name)) if isinstance(one.name, str) else one
            for one in groups
        ],
    )


def _table(
    columns: Sequence[Column],
    groups: Sequence[object],
    top: int,
    width: int,
    by: str,
    share: str = "",
) -> str:
    noun, least = (
        "name" if by == "name" else "group",
        WIDEST if by == "shape" else MIN_LAST_COLUMN_CELLS,
    )
    return top_table(
        columns, groups, top, width, noun, min_last_cells=least, blank="", share=share
    )


def _label(group: KernelGroup, by: str, width: int) -> str:
    fields = asdict(group)
    if by == "name":
        return kernel_label(fields["name"], width)
    if by == "shape":
        op = _op_label(fields, fields["op"] or "no op", by)
        return f"{kernel_label(fields['name'], width)}   {op}"
    if by == "stream":
        return printable(
            f"{device_label(fields['device'])} {stream_label(fields['stream'])}"
        )
    return printable(str(fields[by] or f"no {by}"))


def _op_label(fields: dict[str, Any], op: str, by: str) -> str:
    """`addmm   [8192, 768] bf16, [768, 3072] bf16`: by shape, with inputs that have dimensions."""
    name = printable(op) + (" (captured)" if fields["captured"] else "")
    if by != "shape":
        return name
    inputs = zip_longest(fields["shapes"] or (), fields["dtypes"] or (), fillvalue="")
    texts = (f"{shape} {dtype}".strip() for shape, dtype in inputs if shape)
    return f"{name}   {printable(', '.join(texts))}".rstrip()


def _rate(amount: int | None, ns: int, unit: str) -> str:
    return quantity(amount * NS / ns, unit, DIGITS) if amount and ns else ""


def _device(device: DevicePeak) -> DeviceDocument:
    if (peak := device.peak) is None:
        return DeviceDocument(exact_id(device.device), device.name, None, [])
    peaks = {kind: round(rate * TERA) for kind, rate in peak.teraflops.items()}
    peaks |= {BANDWIDTH: round(peak.bytes_per_s)} if peak.bytes_per_s else {}
    return DeviceDocument(
        exact_id(device.device), device.name, peaks, sorted(peak.given)
    )
