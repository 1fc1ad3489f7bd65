"""NVTX ranges: the ops of PyTorch among them, and what else an export says of a range.

`torch.autograd.profiler.emit_nvtx` names a range `aten::mm, seq = 12, op_id = 317177,
sizes = [[8, 16], [16, 4]]`; the sequence number and the sizes may be missing
(torch/csrc/profiler/util.cpp, getNvtxStr). record_function gives such ranges too,
without a sequence number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fusetui.trace.nsys.database import NONE, Export
from fusetui.trace.read.document_text import shared_name

NVTX = "NVTX_EVENTS"
SHOWN = "ifnull(eventType in (34, 35, 37, 59, 60, 65, 66, 68, 70, 71), 0)"
"""Marks and ranges, by the numbers of ENUM_NSYS_EVENT_TYPE."""
DECLARED = "eventType in (32, 33, 39, 64, 72, 73, 74, 75, 76, 97, 98, 99)"
"""Names of domains, categories, threads and the like."""
MARKS = "eventType in (34, 65)"
DOMAINS = (
    "where eventType = 75 and typeof(domainId) = 'integer' and typeof(text) = 'text'"
)

OP = re.compile(
    r"[a-z_][\w.]*::(?!.*[ (]|\Z)|autograd::engine::evaluate_function: |torch::\w|\w+Backward\d*\Z"
    r"|(?:detach_?|record_param_comms|CompiledFunction|triton_\w+)\Z"
)
"""Of ranges without a sequence number: a library and its op, a node of autograd, or one
of the ops that have no library. Other names are those of record_function."""

PAYLOADS = (
    "uint64Value",
    "int64Value",
    "doubleValue",
    "uint32Value",
    "int32Value",
    "floatValue",
)
Domain = tuple[int, int]
"""A process, as the upper bits of a globalTid, and the number of one of its domains."""
SIZES = re.compile(r", sizes = (\[.*?\])(?:, input_op_ids = .*)?\Z", re.DOTALL)


PLAIN, TORCH, NUMBERED, MARK = range(4)
"""What the text of a range has: nothing, an id of torch, and a sequence number; or it
is a mark."""


def category(kind: int, name: str) -> str:
    """As torch.profiler would name it; a mark has one of its own."""
    if kind == MARK:
        return "nvtx_mark"
    is_op = kind == NUMBERED or (kind == TORCH and OP.match(name))
    return "cpu_op" if is_op else "user_annotation"


_AT = {word: f"instr(text, ', {word} = ')" for word in ("seq", "op_id", "sizes")}
_IS_TORCH = f"(typeof(text) = 'text' and {_AT['op_id']})"
_NUMBERED = f"({_IS_TORCH} and {_AT['seq']} between 1 and {_AT['op_id']})"
BASE = (
    f"iif({_IS_TORCH}, substr(text, 1, iif({_NUMBERED}, {_AT['seq']}, {_AT['op_id']}) - 1), "
    "iif(typeof(text) = 'text', text, NULL))"
)
"""The name without what torch appends; NULL if the text is one of StringIds."""


def _after(word: str) -> str:
    return f"cast(substr(text, {_AT[word]} + {len(word) + 5}, 18) as integer)"


SEQUENCE = f"iif({_NUMBERED}, {_after('seq')}, {NONE})"


def nvtx_fields(db: Export) -> dict[str, str]:
    """The expressions that say more than those of other tables."""
    has_text = db.has(NVTX, "text")
    mark = f"ifnull({MARKS}, 0)" if db.has(NVTX, "eventType") else "0"
    end = db.integer(NVTX, "end")
    torch = (
        f"iif({_IS_TORCH}, iif({_NUMBERED}, {NUMBERED}, {TORCH}), {PLAIN})"
        if has_text
        else "0"
    )
    return {
        "end": f"""iif({mark} and "end" is null, {db.integer(NVTX, "start")}, {end})""",
        "external": f"iif({_IS_TORCH}, {_after('op_id')}, {NONE})"
        if has_text
        else str(NONE),
        "kind": f"iif({mark}, {MARK}, {torch})",
    }


def more_fields(db: Export) -> tuple[str, ...]:
    """The expressions of what is read of a range only to write it: its name, None if
    that is one of StringIds, and what `args_of` takes."""
    has_text = db.has(NVTX, "text")
    values = ", ".join(db.typed(NVTX, c, "'integer', 'real'", "NULL") for c in PAYLOADS)
    return (
        BASE if has_text else "NULL",
        SEQUENCE if has_text else str(NONE),
        f"iif({_IS_TORCH} and {_AT['sizes']}, text, NULL)" if has_text else "NULL",
        db.typed(NVTX, "jsonText", "'text'", "NULL"),
        db.integer(NVTX, "jsonTextId"),
        db.integer(NVTX, "domainId"),
        f"coalesce({values})",
    )


def args_of(
    row: Sequence[Any],
    external: int,
    process: int,
    strings: Mapping[int, str],
    domains: Mapping[Domain, str],
) -> dict[str, Any]:
    """The args of a range as torch writes them, and its payload: that of NCCL says
    bytes and peer. `process` is that of the range, see Domain."""
    sequence, sized, payload, payload_id, domain, value = row
    args: dict[str, Any] = {}
    if external != NONE:
        args["Record function id"] = external
    if sequence != NONE:
        args["Sequence number"] = sequence
    if (
        sized
        and (found := SIZES.search(sized))
        and (sizes := _json(found[1])) is not None
    ):
        args["Input Dims"] = sizes
    if (process, domain) in domains:
        args["domain"] = domains[process, domain]
    if payload or payload_id in strings:
        found_there = _json(payload or strings[payload_id])
        args |= (
            found_there if isinstance(found_there, dict) else {"payload": found_there}
        )
    if value is not None:
        args.setdefault("payload", value)
    return args


def domains_of(db: Export) -> dict[Domain, str]:
    """The names of domains; NCCL has one of its own. Each process numbers its own
    domains."""
    if not db.has(NVTX, "eventType", "domainId", "text"):
        return {}
    columns = (f"({db.integer(NVTX, 'globalTid')}) >> 24", "domainId", "text")
    return {
        (process, domain): shared_name(name, domain)
        for process, domain, name in db.rows(NVTX, columns, DOMAINS)
    }


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text) if text else None
    except (msgspec.DecodeError, RecursionError):
        return None
