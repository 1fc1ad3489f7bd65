"""Which kernels and copies move data between devices, by their names.

Separate from the decoders of kernel names, which take longer to import than most questions take to
answer.
"""

from __future__ import annotations

import re

LIBRARIES = re.compile(
    r"nccl|rccl|msccl|nvshmem|rocshmem|(?<![a-z])(?:one)?ccl(?:_|::)|multimem_|userbuffers"
    r"|cross_device_reduce|allreduce_fusion|deep_ep::|dpsk::ep::|quickreduce::|mori::|pplx::",
    re.IGNORECASE,
)
"""NCCL, RCCL, MSCCL++, NVSHMEM, ROC_SHMEM, oneCCL, symmetric memory of PyTorch, user buffers of
Transformer Engine, the custom all-reduce of vLLM, SGLang, AITER and TensorRT-LLM, DeepEP,
QuickReduce, MORI and pplx."""

WORDS = re.compile(
    r"(?<![A-Za-z])(?i:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)(?![a-z])"
    r"|AllReduce|AllGather|ReduceScatter|All[Tt]oAll"
)
"""Words in kernel names of any other library."""

COMPUTES = re.compile(
    r"\A(?:triton_[a-z]{2,4}_fused_|Cijk_)|gemm|matmul|get_dispatch_layout", re.IGNORECASE
)
"""Inductor names a kernel after all ops whose results it reads; a matrix product that sends its own
result is still a product."""

BETWEEN_DEVICES = re.compile(r"PtoP|peer", re.IGNORECASE)
"""Copies from one device to another, which count as communication."""

LONGEST_NAME = 1 << 14  # characters; only the beginning of a longer name is searched


def is_collective(name: str) -> bool:
    """Whether a kernel of this name communicates."""
    name = name[:LONGEST_NAME]
    if LIBRARIES.search(name) is None and WORDS.search(name) is None:
        return False
    return COMPUTES.search(name) is None


def is_between_devices(name: str) -> bool:
    """Whether a copy of this name goes from one device to another."""
    return BETWEEN_DEVICES.search(name, 0, LONGEST_NAME) is not None
