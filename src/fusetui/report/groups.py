"""The tables and documents of `kernels` and `ops`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from textwrap import fill
from typing import Literal

import msgspec
from msgspec import UnsetType
from msgspec.structs import replace

from fusetui.analysis.questions.groups import (
    Group,
    KernelGroup,
    OpGroup,
    name_missing_group,
)
from fusetui.gpu.kernel_names import decode
from fusetui.gpu.roofline.inputs import NS
from fusetui.gpu.roofline.many import DevicePeak
from fusetui.gpu.roofline.peaks import BANDWIDTH, TERA
from fusetui.report.summary import OP_COLUMNS, label_kernel
from fusetui.text.figures import (
    RATE_DIGITS,
    count,
    duration,
    percent,
    quantity,
    significant,
)
from fusetui.text.printable import printable
from fusetui.text.tables import (
    MIN_LAST_COLUMN_CELLS,
    Column,
    text_or_dash,
    times,
    top_table,
)
from fusetui.trace.model.ids import Id, device_label, exact_id, stream_label

MIN_SHAPES_CELLS = 60
"""Of the last column where it has shapes, before other columns are dropped."""


class DeviceDocument(msgspec.Struct, frozen=True):
    """A device with its peaks by kind, per second: FLOP, and bytes of `bandwidth`."""

    device: Id
    name: str | None
    peaks: dict[str, int] | None
    given: list[str]


class KernelsDocument(msgspec.Struct, frozen=True):
    """`kernels`."""

    by: Literal[
        "name",
        "op",
        "shape",
        "module",
        "kind",
        "library",
        "family",
        "stream",
        "step",
    ]
    devices: list[DeviceDocument]
    kernels: list[KernelGroup]


class OpsDocument(msgspec.Struct, frozen=True):
    """`ops`."""

    by: Literal["name", "shape"]
    ops: Sequence[OpGroup]


def format_kernels(
    groups: Sequence[KernelGroup], by: str, top: int, width: int, notices: Iterable[str]
) -> str:
    """Return a table of the first `top` groups of kernels (0: all), how many are left
    out, and notices about missing figures. There must be at least one group."""
    whole_ns = sum(group.total_ns for group in groups)
    left_out = groups[top:] if top else ()
    left_out_ns = sum(group.total_ns for group in left_out)
    columns = _make_kernel_columns(by, whole_ns, width)
    share = percent(left_out_ns, whole_ns)
    lines = [_format_table(columns, groups, top, width, by, share)]
    lines += [fill(printable(notice), width) for notice in notices]
    return "\n".join(lines)


def format_ops(groups: Sequence[OpGroup], by: str, top: int, width: int) -> str:
    """Return a table of the first `top` groups of ops (0: all), and how many are left
    out."""
    if not groups:
        return "no CPU ops in this trace"

    def label(group: OpGroup) -> str:
        name = _format_op_name(str(group.name), group)
        return _append_inputs(name, group) if by == "shape" else name

    columns = (
        *OP_COLUMNS,
        *times(mean=5, p10=8, median=6, p90=7),
        Column("op and inputs" if by == "shape" else "op", left=True, cell=label),
    )
    return _format_table(columns, groups, top, width, by)


def make_kernels_document(
    groups: Sequence[KernelGroup], by: str, devices: Sequence[DevicePeak]
) -> KernelsDocument:
    """Return the document that `kernels --json` prints, in which names of kernels are
    decoded."""
    kernels = []
    for group in groups:
        if isinstance(group.name, str):
            kernels.append(replace(group, decoded=decode(group.name)))
        else:
            kernels.append(group)
    return KernelsDocument(
        by=by,  # type: ignore[arg-type]  # one of arguments.KERNELS_BY
        devices=[_make_device_document(device) for device in devices],
        kernels=kernels,
    )


def _make_kernel_columns(by: str, whole_ns: int, width: int) -> list[Column]:
    """Return the columns of the table of kernels, grouped by `by`. Shares are of
    `whole_ns`, and `width` is that of the table in cells."""

    def share(group: KernelGroup) -> str:
        return percent(group.total_ns, whole_ns)

    def label(group: KernelGroup) -> str:
        return _describe_kernel_group(group, by, width)

    columns = [
        *times(total=0),
        Column("effective", spare=5, cell=_format_effective_time),
        Column("share", spare=2, cell=share),
        Column("count", spare=3, cell=lambda group: count(group.count)),
        Column("of peak", spare=1, cell=_share_of_peak),
        Column(
            "FLOP/s",
            spare=12,
            cell=lambda group: _format_rate(group.flop, group.flop_ns, "FLOP/s"),
        ),
        Column(
            "B/s",
            spare=13,
            cell=lambda group: _format_rate(group.bytes, group.bytes_ns, "B/s"),
        ),
        Column("waves", spare=14, cell=_waves),
        *times(mean=6, min=10, p10=8, median=4, p90=7, max=11),
        Column(TITLES.get(by, by), left=True, cell=label),
    ]
    if by == "name":
        full_name = Column(
            "name", left=True, spare=15, cell=lambda group: printable(group.name)
        )
        columns.append(full_name)
    return columns


TITLES = {"name": "kernel", "shape": "kernel, op and inputs"}
"""Of the last column, by what kernels are grouped by; of others it is called so."""


def _format_effective_time(group: KernelGroup) -> str:
    """Return the effective time of a group of kernels, or "" if it is its total time."""
    if group.effective_ns == group.total_ns:
        return ""
    return duration(group.effective_ns)


def _share_of_peak(group: KernelGroup) -> str:
    return text_or_dash(group.share_of_peak, lambda share: percent(share, 1), "")


def _waves(group: KernelGroup) -> str:
    return text_or_dash(group.waves, lambda waves: significant(waves, RATE_DIGITS), "")


def _format_rate(amount: float | None, ns: int, unit: str) -> str:
    """Return an amount done in `ns` as a rate per second, such as FLOP/s. "" if the
    amount or the time is unknown or zero."""
    return quantity(amount * NS / ns, unit, RATE_DIGITS) if amount and ns else ""


def _format_table(
    columns: Sequence[Column],
    groups: Sequence[Group],
    top: int,
    width: int,
    by: str,
    share: str = "",
) -> str:
    """Return the table of the first `top` groups. `share` is the share of time of the
    groups that are left out."""
    return top_table(
        columns,
        groups,
        top,
        width,
        noun="name" if by == "name" else "group",
        min_last_cells=MIN_SHAPES_CELLS if by == "shape" else MIN_LAST_COLUMN_CELLS,
        blank="",
        share=share,
    )


def _describe_kernel_group(group: KernelGroup, by: str, width: int) -> str:
    """Return what the kernels of a group have in common, which is what they are grouped
    by."""
    if by == "name":
        return label_kernel(str(group.name), width)
    if by == "shape":
        op = _append_inputs(
            _format_op_name(str(group.op or name_missing_group("op")), group), group
        )
        return f"{label_kernel(str(group.name), width)}   {op}"
    if by == "stream":
        assert not isinstance(
            group.device, UnsetType
        )  # set, as these are grouped by it
        assert not isinstance(group.stream, UnsetType)
        device = device_label(group.device)
        return printable(f"{device} {stream_label(group.stream)}")
    value = getattr(group, "family" if by == "library" else by)
    return printable(str(value or name_missing_group(by)))


def _format_op_name(op: str, group: Group) -> str:
    """Return the name of an op, with a remark if it was captured in a CUDA graph."""
    name = printable(op)
    return f"{name} (captured)" if group.captured else name


def _append_inputs(op: str, group: Group) -> str:
    """Return the name of an op with its inputs that have dimensions, as far as they
    were recorded.

        addmm   [8192, 768] bf16, [768, 3072] bf16
    """
    inputs = []
    for shape, dtype in zip_longest(
        group.shapes or (), group.dtypes or (), fillvalue=""
    ):
        if shape:
            inputs.append(f"{shape} {dtype}".strip())
    return f"{op}   {printable(', '.join(inputs))}".rstrip()


def _make_device_document(device: DevicePeak) -> DeviceDocument:
    """Return a device with its peak rates, in FLOP/s and bytes/s, for --json. Rates are
    None if the device is unknown."""
    number = exact_id(device.device)
    peak = device.peak
    if peak is None:
        return DeviceDocument(device=number, name=device.name, peaks=None, given=[])
    peaks = {kind: round(rate * TERA) for kind, rate in peak.teraflops.items()}
    if peak.bytes_per_s:
        peaks[BANDWIDTH] = round(peak.bytes_per_s)
    return DeviceDocument(
        device=number, name=device.name, peaks=peaks, given=sorted(peak.overridden)
    )
