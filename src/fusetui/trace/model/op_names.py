"""Classifies CPU ops by name: compute, move data, describe tensors, or wrap other ops;
and lists the names of all ATen ops."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from fusetui.text.patterns import lazy_pattern


def words(text: str) -> frozenset[str]:
    """The distinct words of a text, divided by blanks and line ends."""
    return frozenset(text.split())


COMPILER: Final = (
    "TorchDynamo Cache Lookup",
    "Torch-Compiled Region",
    "Pregraph bytecode",
    "AOTDispatcher",
    "CompiledFunction",
    "CompiledFxGraph",
    "## Call CompiledFxGraph",
)
"""Prefixes of the ops that torch.compile adds around those of the program."""

METADATA: Final = words(
    """_conj _has_compatible_shallow_copy_type _local_scalar_dense _reshape_alias _unsafe_view
    adjoint alias as_strided broadcast_tensors broadcast_to can_cast chunk contiguous
    cudnn_is_acceptable detach diagonal empty empty_like empty_strided expand expand_as flatten
    is_nonzero is_pinned is_same_size item lift_fresh mH mT movedim narrow new_empty
    new_empty_strided numpy_T permute real reshape resize resolve_conj resolve_neg result_type
    select set slice split split_with_sizes squeeze swapaxes t tensor_split to transpose type_as
    unbind unflatten unfold unsafe_chunk unsafe_split unsqueeze view view_as view_as_complex
    view_as_real"""
)
"""Ops that describe or allocate tensors but compute nothing; some only call a copy."""

HELPERS: Final = words(
    """_to_copy arange clone constant_pad_nd copy fill full full_like new_full new_ones new_zeros
    ones ones_like pad scalar_tensor select_backward slice_backward zero zeros zeros_like"""
)
"""Ops that copy or fill, and those made of nothing else. Other ops call them too, for
example for the bias of a product, or to clear a sum."""

WHOLE: Final = words(
    """_index_put_impl _linalg_svd addmm addmv baddbmm bincount bmm histc index linalg_cholesky_ex
    linalg_lu_solve mean mkldnn_rnn_layer mkldnn_rnn_layer_backward mm mv std std_mean var
    var_mean"""
)
"""Ops that compute something themselves and also call other ops that compute."""

_AUTOGRAD = lazy_pattern(r"(?:detach_?|\w+Backward\d*|torch::autograd::\w+)\Z")
"""Frames of the backward pass around the ops that compute."""


@cache
def aten_ops() -> frozenset[str]:
    """The operator packets of the namespaces aten, prims, inductor,
    quantized_decomposed, _c10d_functional, symm_mem, rngprims, mkldnn and higher_order
    of PyTorch 2.13, as torch._C._dispatch_get_all_op_names() gives them. Of the
    in-place twins only copy_, which writes a result back, reaches the name of a
    kernel."""
    listed = Path(__file__).with_name("aten_ops.json").read_bytes()
    return frozenset(msgspec.json.decode(listed, type=list[str]))


@cache
def stem(op: str) -> str:
    """The name of an op without namespace and in-place suffix: `add` for `aten::add_`."""
    last = op.rpartition("::")[2]
    return last.rstrip("_") or last


@cache
def is_compiler(name: str) -> bool:
    """Whether an op is a wrapper of torch.compile, not an op of the program."""
    return name.startswith(COMPILER)


@cache
def is_metadata(op: str) -> bool:
    """Whether an op only changes the metadata of tensors, such as a view."""
    return stem(op) in METADATA


def is_frame(name: str) -> bool:
    """Whether an op only wraps others: of autograd, torch.compile or a data loader.
    Names of data loaders have a blank or a `#`."""
    return (
        " " in name
        or "#" in name
        or is_compiler(name)
        or _AUTOGRAD.match(name) is not None
    )
