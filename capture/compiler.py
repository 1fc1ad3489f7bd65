"""torch.compile: its counters, and the settings that make a CPU's kernels visible."""

from __future__ import annotations

import torch


def show_cpu_kernels() -> None:
    """Makes Inductor report its fused C++ kernels to the profiler, which it hides by default."""
    import torch._inductor.config

    torch._inductor.config.cpp.enable_kernel_profile = True


def forget_compiled() -> None:
    """Makes each variant compile anew, whatever was compiled before in this process."""
    torch._dynamo.reset()
    forget_counts()


def forget_counts() -> None:
    """Makes the counters start anew; what was compiled stays."""
    torch._dynamo.utils.counters.clear()


def graph_count() -> int:
    """How many graphs were compiled since `forget_compiled` or `forget_counts`."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def was_cached() -> bool | None:
    """Whether Inductor took its kernels from the cache on disk; None if it compiled no graph."""
    if not graph_count():
        return None
    counters = torch._dynamo.utils.counters["inductor"]
    return bool(counters["fxgraph_cache_hit"] and not counters["fxgraph_cache_miss"])
