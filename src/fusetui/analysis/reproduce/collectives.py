"""The details of a collective: from record_param_comms for NCCL, and otherwise from the
inputs of its op, because gloo records nothing else."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from fusetui.analysis.reproduce.arguments import (
    RefusedError,
    collect_tensors,
    parse_recorded_inputs,
)
from fusetui.analysis.reproduce.call_table import PARAM_COMMS, call_table
from fusetui.analysis.reproduce.inner_ops import list_inner_calls
from fusetui.analysis.reproduce.model import CollectiveFacts, Refusal, TensorArgument
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.columns import Trace

COLLECTIVE_NAME: Final = lazy_pattern(r"c10d::|_c10d_functional::|record_param_comms\Z")
OP_PREFIX: Final = "c10d::"

NO_COLLECTIVES: Final = ("wait", "init", "end")
"""Names in record_param_comms of what moves no data."""

OUTPUT_FIRST: Final = (
    "_allgather_base",
    "_reduce_scatter_base",
    "alltoall_base",
    "allgather",
    "reduce_scatter",
    "gather",
    "scatter",
)
"""Collectives whose op takes its output before its input."""

SCALAR_TYPES: Final = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int32": "Int",
    "int64": "Long",
    "int8": "Char",
    "uint8": "Byte",
    "bool": "Bool",
}
"""How record_param_comms names element types, by torch's names in Python."""

UNKNOWN_RANKS: Final = 2
"""Where the number of ranks was not recorded."""

MAX_ELEMENTS: Final = 2**40
MAX_RANKS: Final = 2**20


class _ParamComms(msgspec.Struct):
    """Args of record_param_comms; their names have blanks."""

    name: str = msgspec.field(name="Collective name", default="")
    dtype: str = msgspec.field(name="dtype", default="")
    in_elements: int = msgspec.field(name="In msg nelems", default=0)
    out_elements: int = msgspec.field(name="Out msg nelems", default=0)
    ranks: int = msgspec.field(name="Group size", default=0)


def read_collective(trace: Trace, row: int) -> CollectiveFacts:
    """Return the name, element type and sizes of the collective that an op is.

    The args of record_param_comms decide if there are any, which is so for NCCL.
    Otherwise the inputs of the op do.

    Raises:
        RefusedError: The size was not recorded, the args are damaged, or the op
            moves no data, such as `wait`.
    """
    comms_args = _find_comms_args(trace, row)
    if not comms_args:
        return _infer_from_inputs(trace, row)

    try:
        comms = msgspec.convert(comms_args, _ParamComms)
    except msgspec.ValidationError:
        raise RefusedError(Refusal.DAMAGED) from None
    if comms.name in NO_COLLECTIVES:
        raise RefusedError(Refusal.NOT_AN_OP)

    collective = CollectiveFacts(
        name=comms.name,
        dtype=comms.dtype,
        in_elements=comms.in_elements,
        out_elements=comms.out_elements,
        ranks=comms.ranks,
    )
    _check_sizes(collective)
    return collective


def _find_comms_args(trace: Trace, row: int) -> dict[str, Any]:
    """Return the args of the record_param_comms that an op is, or that lies inside it.
    Returns {} if there is none."""
    if trace.name_of(row) == PARAM_COMMS:
        return trace.args_of(row)
    for call in list_inner_calls(trace, row):
        if call.name == PARAM_COMMS:
            return trace.args_of(call.row)
    return {}


def _infer_from_inputs(trace: Trace, row: int) -> CollectiveFacts:
    """Infer the details of a collective from the inputs of its op, such as
    c10d::allreduce_.

    Raises:
        RefusedError: The op is not of c10d, or its inputs cannot be used.
    """
    op = trace.name_of(row)
    if not op.startswith(OP_PREFIX):
        raise RefusedError(Refusal.NO_INPUTS)

    inputs = parse_recorded_inputs(op, call_table(trace).inputs_of(row))
    dtype = ""
    sizes: list[int] = []  # of each argument with tensors, in elements
    for argument in inputs.arguments:
        tensors = collect_tensors([argument])
        if tensors:
            sizes.append(sum(math.prod(tensor.shape) for tensor in tensors))
        if isinstance(argument, TensorArgument):
            dtype = SCALAR_TYPES.get(argument.dtype, "")

    # An op with one such argument overwrites its input.
    name = op.removeprefix(OP_PREFIX).removesuffix("_")
    first_size = sizes[0] if sizes else 0
    last_size = sizes[-1] if sizes else 0
    collective = CollectiveFacts(
        name=name,
        dtype=dtype,
        in_elements=last_size if name in OUTPUT_FIRST else first_size,
        out_elements=first_size,
        ranks=_recorded_world_size(trace),
    )
    _check_sizes(collective)
    return collective


def _recorded_world_size(trace: Trace) -> int:
    """Return how many ranks the job has, as the trace records it; UNKNOWN_RANKS (2) if
    it does not."""
    info = trace.keys.get("distributedInfo")
    ranks = info.get("world_size") if isinstance(info, dict) else None
    if isinstance(ranks, int) and ranks > 0:
        return ranks
    return UNKNOWN_RANKS


def _check_sizes(collective: CollectiveFacts) -> None:
    """Check that a collective has a name and possible sizes.

    Raises:
        RefusedError: It has no name, or a number of ranks or elements that no
            collective has.
    """
    has_possible_ranks = 1 <= collective.ranks <= MAX_RANKS
    if not collective.name or not has_possible_ranks:
        raise RefusedError(Refusal.NO_INPUTS)
    for elements in (collective.in_elements, collective.out_elements):
        if elements < 0:
            raise RefusedError(Refusal.DAMAGED)
        if elements > MAX_ELEMENTS:
            raise RefusedError(Refusal.TOO_LARGE)
