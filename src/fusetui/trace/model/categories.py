"""Determines the category of a slice, for which pid and tid are not sufficient."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Role(IntEnum):
    """What kind of event a slice is."""

    OTHER = 0
    ANNOTATION = 1
    PYTHON = 2
    OP = 3
    CALL = 4  # a runtime or driver call; some of them launch GPU work
    KERNEL = 5
    MEMCPY = 6
    MEMSET = 7
    GPU_ANNOTATION = 8
    SYNC = 9
    DEVICE = 10  # device work of other vendors
    PROFILER = 11  # the profiler's own slice around the trace
    # where a node of a graph was captured, in another trace (see joined.py)
    CAPTURED = 12


class Layer(StrEnum):
    """What a track holds; the tracks of a thread or stream are in this order."""

    ANNOTATIONS = "annotations"
    PYTHON = "python"
    OPS = "ops"
    STREAM = "stream"
    GPU_ANNOTATIONS = "gpu_annotations"
    SYNC = "gpu_sync"
    DEVICE = "device"
    OTHER = "other"
    CAPTURED = "captured"  # rows of another trace, where graphs were captured


GPU_ROLES = (Role.KERNEL, Role.MEMCPY, Role.MEMSET)

ROLES_ON_STREAMS = (*GPU_ROLES, Role.GPU_ANNOTATION)
"""Roles of slices whose args may name another device or stream than their pid and tid
do."""

# of rows that stand for annotations of graphs (joined.py)
GRAPH_ANNOTATION = "graph_annotation"

ROLES = {
    "user_annotation": Role.ANNOTATION,
    GRAPH_ANNOTATION: Role.ANNOTATION,
    "python_function": Role.PYTHON,
    "cpu_op": Role.OP,
    "operator": Role.OP,
    "kernel": Role.KERNEL,
    "cuda_graph": Role.KERNEL,  # of nsys: a whole graph as one event
    "gpu_memcpy": Role.MEMCPY,
    "memcpy": Role.MEMCPY,
    "gpu_memset": Role.MEMSET,
    "memset": Role.MEMSET,
    "gpu_user_annotation": Role.GPU_ANNOTATION,
    "cuda_sync": Role.SYNC,
    "xpu_sync": Role.SYNC,
    "cuda_event": Role.SYNC,
    "graph_event_node": Role.SYNC,
    "graph_host_node": Role.SYNC,
    "mtia_ccp_events": Role.DEVICE,
    "cuda_profiler_range": Role.DEVICE,
    "trace": Role.PROFILER,
}

LAYERS = {
    Role.ANNOTATION: Layer.ANNOTATIONS,
    Role.PYTHON: Layer.PYTHON,
    Role.OP: Layer.OPS,
    Role.CALL: Layer.OPS,
    Role.KERNEL: Layer.STREAM,
    Role.MEMCPY: Layer.STREAM,
    Role.MEMSET: Layer.STREAM,
    Role.GPU_ANNOTATION: Layer.GPU_ANNOTATIONS,
    Role.SYNC: Layer.SYNC,
    Role.DEVICE: Layer.DEVICE,
    Role.PROFILER: Layer.OTHER,
    Role.OTHER: Layer.OTHER,
    Role.CAPTURED: Layer.CAPTURED,
}

CPU_LAYERS = (Layer.ANNOTATIONS, Layer.PYTHON, Layer.OPS)
GPU_LAYERS = (Layer.GPU_ANNOTATIONS, Layer.STREAM, Layer.DEVICE, Layer.SYNC)
LAYER_ORDER = (*CPU_LAYERS, *GPU_LAYERS, Layer.OTHER, Layer.CAPTURED)


STEP_PREFIX = "ProfilerStep#"

NO_OPS = (
    STEP_PREFIX,
    "Optimizer.",
    "enumerate(DataLoader)#",
    "DataLoader",
    "DistributedDataParallel.",
    "##",
    "gloo:",
    "mpi:",
    "ucc:",
)
"""How the names of annotations begin that some files record as operators: what torch
puts around steps, optimizers, loaders and replicas, `## forward ##` of its examples,
and what lasts until a collective on the CPU or a transfer to another rank is done."""


LEGACY_CPU = "CPU functions"
LEGACY_GPU = "CUDA functions"
"""The processes of torch's older exporter (`EventList.export_chrome_trace` of
`torch.autograd.profiler`), whose slices have no category. The second one has the time
on the GPU between two CUDA events around an op, under the name of that op, or kernels
by their own names if nvprof had recorded them."""


def role(category: str) -> Role:
    """The role that slices of a category have; OTHER for an unknown one. Upper and
    lower case do not matter, because they have changed over the years. Every *_runtime
    and *_driver is a call."""
    lower = category.lower()
    if lower.endswith(("runtime", "driver")):
        return Role.CALL
    return ROLES.get(lower, Role.OTHER)
