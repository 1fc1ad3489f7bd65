"""Which kernels a trace holds, and how many one step runs."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Event = Mapping[str, Any]

_BOOKKEEPING = """
    t transpose numpy_T view reshape as_strided expand expand_as _unsafe_view _reshape_alias permute
    select slice narrow unsqueeze squeeze detach alias unbind split chunk flatten unflatten view_as
    resolve_conj resolve_neg lift_fresh to contiguous
    empty empty_like empty_strided new_empty new_empty_strided resize_ set_
"""
BOOKKEEPING = frozenset(f"aten::{op}" for op in _BOOKKEEPING.split())
"""Ops that move no data themselves: views, allocations, and the wrappers around a copy."""

_WHOLE = """
    mm addmm bmm baddbmm mv addmv sum mean prod amax amin max min var std cat native_layer_norm
"""
WHOLE = frozenset(f"aten::{op}" for op in _WHOLE.split())
"""Ops that compute themselves: what they call besides, to copy a bias or clear a sum, is a part
of them."""

_AUTOGRAD = re.compile(r"(?:detach|\w+Backward\d*|torch::autograd::\w+)\Z")
"""Frames of the backward pass around the ops that compute."""


@dataclass(frozen=True)
class Kernels:
    """The names of all kernels of a trace, and how many steps they belong to (0: none marked).

    `copies` and `sets` count a GPU's transfers and clearings of memory, which are no kernels.
    """

    names: Sequence[str]
    steps: int
    copies: int = 0
    sets: int = 0

    @property
    def per_step(self) -> float:
        """Kernels per step; a whole number whenever all steps ran the same ones."""
        return per_step(len(self.names), self.steps)


def kernels_of(trace_json: str, device_kind: str) -> Kernels:
    """The kernels in the JSON text of a trace.

    On a CPU these are the compute ops: the `cpu_op` slices that contain no other one, after views,
    allocations and the frames of autograd and torch.compile were left out. So `aten::linear`,
    which calls `aten::mm`, counts once, and one fused C++ kernel of Inductor counts once.
    """
    events = json.loads(trace_json, parse_float=Decimal)["traceEvents"]
    slices = [event for event in events if event.get("ph") == "X"]
    steps = sum(_is_step(event) for event in slices)
    if device_kind == "cpu":
        return Kernels(list(compute_ops(slices)), steps)
    names = [event["name"] for event in slices if event.get("cat") == "kernel"]
    categories = Counter(event.get("cat") for event in slices)
    return Kernels(names, steps, categories["gpu_memcpy"], categories["gpu_memset"])


def compute_ops(slices: Iterable[Event]) -> Iterator[str]:
    """The names of the CPU's compute ops, in time order within each thread."""
    threads: defaultdict[object, list[Event]] = defaultdict(list)
    for event in slices:
        if event.get("cat") == "cpu_op" and not _is_bookkeeping(event["name"]):
            threads[event["tid"]].append(event)
    for ops in threads.values():
        yield from _leaves(sorted(ops, key=lambda op: (op["ts"], -op["dur"])))


def _is_step(event: Event) -> bool:
    """GPU lanes repeat the steps as gpu_user_annotation: those are not counted."""
    is_annotation: bool = event.get("cat") == "user_annotation"
    return is_annotation and event["name"].startswith("ProfilerStep#")


def _is_bookkeeping(name: str) -> bool:
    """Views, allocations, frames; torch.compile's own frames are the names with a blank in them."""
    return name in BOOKKEEPING or " " in name or _AUTOGRAD.match(name) is not None


def _leaves(ops: list[Event]) -> Iterator[str]:
    """In this order an op has something inside exactly if the next one starts before it ends."""
    end = Decimal("-Infinity")
    for index, op in enumerate(ops):
        if op["ts"] < end:
            continue
        is_last = index + 1 == len(ops)
        if op["name"] in WHOLE:
            end = op["ts"] + op["dur"]
            yield op["name"]
        elif is_last or ops[index + 1]["ts"] >= op["ts"] + op["dur"]:
            yield op["name"]


def per_step(count: int, steps: int) -> float:
    """A count divided by the steps, to two digits; the count itself if no steps are marked."""
    if steps == 0:
        return count
    return count // steps if count % steps == 0 else round(count / steps, 2)
