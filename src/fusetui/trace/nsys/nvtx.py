"""NVTX ranges: PyTorch ops among them, and other details that an export has about a
range.

`torch.autograd.profiler.emit_nvtx` names a range `aten::mm, seq = 12, op_id = 317177,
sizes = [[8, 16], [16, 4]]`; the sequence number and the sizes may be missing
(torch/csrc/profiler/util.cpp, getNvtxStr). record_function gives such ranges too,
without a sequence number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from fusetui.trace.nsys.database import NONE, Export
from fusetui.trace.read.document_text import shorten_shared_name

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

PAYLOAD_COLUMNS = (
    "uint64Value",
    "int64Value",
    "doubleValue",
    "uint32Value",
    "int32Value",
    "floatValue",
)
SIZES = re.compile(r", sizes = (\[.*?\])(?:, input_op_ids = .*)?\Z", re.DOTALL)

PLAIN, TORCH, NUMBERED, MARK = range(4)
"""What the text of a range has: nothing, an id of torch, and a sequence number; or it
is a mark."""


class Domain(NamedTuple):
    """A domain of NVTX; each process numbers its own ones."""

    process: int  # the upper bits of a globalTid
    number: int


class MoreOfRange(NamedTuple):
    """What is read of a range only to write it."""

    name: str | None  # None if that is one of StringIds
    sequence: int  # NONE if torch gave none
    text_with_sizes: str | None
    payload: str | None  # JSON
    payload_id: int  # JSON, one of StringIds
    domain: int
    value: float | None  # a payload that is a number


def category(kind: int, name: str) -> str:
    """The category that torch.profiler would give a range: `cpu_op` or
    `user_annotation`.

    A mark, which is a single moment, has the category `nvtx_mark`. `kind` is PLAIN,
    TORCH, NUMBERED or MARK; it tells what torch appended to the text of the range.
    """
    if kind == MARK:
        return "nvtx_mark"
    is_op = kind == NUMBERED or (kind == TORCH and OP.match(name))
    return "cpu_op" if is_op else "user_annotation"


def _position_expression(key: str) -> str:
    """The SQL expression of the position where `, KEY = ` begins in the column `text`.
    Positions count from 1; the value is 0 if the text does not contain it."""
    return f"instr(text, ', {key} = ')"


def _integer_expression(key: str) -> str:
    """The SQL expression of the integer that follows `, KEY = ` in the column `text`."""
    # 5 is the length of `, ` and ` = ` around the key; 18 digits always fit into 64
    # bits
    return f"cast(substr(text, {_position_expression(key)} + {len(key) + 5}, 18) as integer)"


_OP_ID_AT = _position_expression("op_id")
_SEQUENCE_AT = _position_expression("seq")
_IS_TORCH = f"(typeof(text) = 'text' and {_OP_ID_AT})"
_IS_NUMBERED = f"({_IS_TORCH} and {_SEQUENCE_AT} between 1 and {_OP_ID_AT})"
_NAME_END = f"iif({_IS_NUMBERED}, {_SEQUENCE_AT}, {_OP_ID_AT})"
BASE = (
    f"iif({_IS_TORCH}, substr(text, 1, {_NAME_END} - 1), "
    "iif(typeof(text) = 'text', text, NULL))"
)
"""The name without what torch appends; NULL if the text is one of StringIds."""
SEQUENCE = f"iif({_IS_NUMBERED}, {_integer_expression('seq')}, {NONE})"


def nvtx_fields(db: Export) -> dict[str, str]:
    """The SQL expressions of those columns of NVTX_EVENTS that other tables compute
    differently, by name.

    `end` of a mark without an end is its start. `external` is the id that torch
    appended as `op_id`, or NONE. `kind` is PLAIN, TORCH, NUMBERED or MARK.
    """
    is_mark = f"ifnull({MARKS}, 0)" if db.has(NVTX, "eventType") else "0"
    external = str(NONE)
    kind = "0"
    if db.has(NVTX, "text"):
        external = f"iif({_IS_TORCH}, {_integer_expression('op_id')}, {NONE})"
        kind = f"iif({_IS_TORCH}, iif({_IS_NUMBERED}, {NUMBERED}, {TORCH}), {PLAIN})"
    start = db.integer(NVTX, "start")
    end = db.integer(NVTX, "end")
    return {
        "end": f"""iif({is_mark} and "end" is null, {start}, {end})""",
        "external": external,
        "kind": f"iif({is_mark}, {MARK}, {kind})",
    }


def more_fields(db: Export) -> tuple[str, ...]:
    """The SQL expressions of the fields of MoreOfRange, in their order. A column that
    the export does not have becomes NULL or NONE."""
    name = text_with_sizes = "NULL"
    sequence = str(NONE)
    if db.has(NVTX, "text"):
        name = BASE
        sequence = SEQUENCE
        text_with_sizes = (
            f"iif({_IS_TORCH} and {_position_expression('sizes')}, text, NULL)"
        )
    values = [
        db.typed(NVTX, column, "'integer', 'real'", "NULL")
        for column in PAYLOAD_COLUMNS
    ]
    expressions = {
        "name": name,
        "sequence": sequence,
        "text_with_sizes": text_with_sizes,
        "payload": db.typed(NVTX, "jsonText", "'text'", "NULL"),
        "payload_id": db.integer(NVTX, "jsonTextId"),
        "domain": db.integer(NVTX, "domainId"),
        "value": f"coalesce({', '.join(values)})",
    }
    return tuple(expressions[field] for field in MoreOfRange._fields)


def args_of(
    more: MoreOfRange,
    external: int,
    process: int,
    strings: Mapping[int, str],
    domains: Mapping[Domain, str],
) -> dict[str, Any]:
    """The args of an NVTX range as torch.profiler writes them, with the payload of the
    range.

    A payload that is a JSON object, such as the bytes and the peer of NCCL, adds its
    own keys. Any other payload is the arg `payload`.

    Args:
        more: What was read of the range beside its times.
        external: The id that torch gave the op, or NONE.
        process: The process of the range, numbered as in Domain.
        strings: The texts of the export, by number.
        domains: The names of the NVTX domains.
    """
    args: dict[str, Any] = {}
    if external != NONE:
        args["Record function id"] = external
    if more.sequence != NONE:
        args["Sequence number"] = more.sequence
    sizes = _parse_input_sizes(more.text_with_sizes or "")
    if sizes is not None:
        args["Input Dims"] = sizes
    domain = Domain(process, more.domain)
    if domain in domains:
        args["domain"] = domains[domain]
    payload_json = more.payload or strings.get(more.payload_id)
    if payload_json is not None:
        payload = _decode_json(payload_json)
        if isinstance(payload, dict):
            args |= payload
        else:
            args["payload"] = payload
    if more.value is not None:
        args.setdefault("payload", more.value)
    return args


def _parse_input_sizes(text: str) -> Any:
    """The sizes of the inputs that torch appended to the text of a range, such as [[8,
    16], [16, 4]]. None if the text has none, or they are not valid JSON."""
    match = SIZES.search(text)
    return _decode_json(match[1]) if match else None


def domains_of(db: Export) -> dict[Domain, str]:
    """The names of the NVTX domains of an export, by process and number. {} if the
    export lacks the columns for them.

    A domain groups the ranges of one library: NCCL has its own. Each process numbers
    its own domains.
    """
    if not db.has(NVTX, "eventType", "domainId", "text"):
        return {}
    process = f"({db.integer(NVTX, 'globalTid')}) >> 24"
    return {
        Domain(process, number): shorten_shared_name(name, number)
        for process, number, name in db.rows(
            NVTX, (process, "domainId", "text"), DOMAINS
        )
    }


def _decode_json(text: str) -> Any:
    """The value of a JSON text. None if the text is blank or is not valid JSON."""
    try:
        return msgspec.json.decode(text) if text else None
    except (msgspec.DecodeError, RecursionError):
        return None
