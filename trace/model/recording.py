"""How to record what a trace lacks, in the words of what recorded it."""

from __future__ import annotations

TORCH, NVTX = "torch.profiler with", "torch.autograd.profiler.emit_nvtx"
OF_NSYS = {
    "with_stack=True": f"{TORCH} with_stack=True",
    "profile_memory=True": f"{TORCH} profile_memory=True",
    "record_shapes=True": f"{NVTX}(record_shapes=True)",
    "ProfilerActivity.CPU": f"{NVTX}()",
    "ProfilerActivity.CUDA": "nsys profile -t cuda,nvtx",
    "record_function": "torch.cuda.nvtx.range",
    "with_stack=True, or record_function": "torch.cuda.nvtx.range",
    "deviceProperties, as torch 1.12 and later": "the table TARGET_INFO_GPU of the export",
}
"""By the options of torch.profiler."""
UNCUT = "an export named .json, not .pftrace"
OF_PFTRACE = dict.fromkeys(
    ("profile_memory=True", "deviceProperties, as torch 1.12 and later"), UNCUT
)
"""Likewise: what torch loses when it writes that format."""
BY_FORM = {"nsys": OF_NSYS, "pftrace": OF_PFTRACE}


def recorded_with(option: str, form: str) -> str:
    """What records it: an option of torch.profiler, unless the format of the trace is another."""
    return BY_FORM.get(form, {}).get(option, option)
