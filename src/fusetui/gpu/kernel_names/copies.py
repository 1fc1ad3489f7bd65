"""Copies and fills by the copy engine: `Memcpy HtoD (Pageable -> Device)`, `Memset (Device)`.

Written by PyTorch's profiler (pytorch/kineto libkineto/src/CuptiActivity.cpp): the direction, then
the kinds of memory on both sides.
"""

from __future__ import annotations

import re
from typing import Final

from fusetui.gpu.kernel_names.record import KernelName, build, explain

_COPY = re.compile(
    r"Memcpy (?P<direction>[A-Z]to[A-Z])(?: \((?P<source>\w{1,20}) -> (?P<target>\w{1,20})\))?"
)
_SET = re.compile(r"Memset(?: \((?P<kind>\w{1,20})\))?")

_MEMORY: Final = {
    "Pageable": "ordinary host memory: the copy is slow and makes the host wait",
    "Pinned": "page-locked host memory: the copy can overlap other work",
    "Device": "GPU memory",
    "Host": "host memory",
    "Managed": "memory that moves between host and GPU on demand",
    "Unknown": "of unknown kind",
}


def decode(name: str) -> KernelName | None:
    """The record of a copy or a fill by the copy engine."""
    if not name.startswith("Mem"):
        return None
    return _decode_copy(name) or _decode_set(name)


def _decode_copy(name: str) -> KernelName | None:
    match = _COPY.fullmatch(name)
    if match is None:
        return None
    source, target, direction = match["source"], match["target"], match["direction"]
    parts = explain(match, {"direction": "{}: D is the GPU (device), H the host"})
    for group, word in (("source", "from"), ("target", "to")):
        if match[group]:
            parts.append((*match.span(group), f"{word} {_MEMORY.get(match[group], match[group])}"))
    kinds = f" {source}->{target}" if source else ""
    short = f"memcpy {direction}{kinds}"
    return build(name, "memcpy", short, parts, op="memcpy", direction=direction)


def _decode_set(name: str) -> KernelName | None:
    match = _SET.fullmatch(name)
    if match is None:
        return None
    kind = match["kind"]
    parts = [(*match.span("kind"), f"fills {_MEMORY.get(kind, kind)}")] if kind else []
    return build(name, "memset", f"memset {kind or ''}".strip(), parts, op="memset")
