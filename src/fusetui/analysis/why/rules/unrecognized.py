"""The rule unrecognized-kernel: one kernel of no known library takes most of the time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.rule import Claim, Rule, format_share_of_work
from fusetui.gpu.kernel_names import decode
from fusetui.gpu.roofline.bounds import count_resident_blocks
from fusetui.gpu.roofline.many import find_launch_configuration
from fusetui.text.figures import count, duration, percent, plural
from fusetui.text.patterns import MAX_SEARCHED_CHARS, lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.model.arrays import Flags, heaviest_id
from fusetui.trace.model.sorted_arrays import position_of

MIN_SHARE = 0.5
"""A kernel with a smaller share of the effective time of all kernels is no finding.

From half of it on, no other kernel matters more, and all others together matter no
more. Below it, kernels that are known limit the time.
"""
MIN_NS = 1_000_000
"""A kernel that takes less in all is not worth a look by itself."""

OF_LIBRARY = lazy_pattern(
    r"at::|c10::|cub::|thrust::|cutlass|cute::|cudnn|cublas|cufft|curand|cusparse|nccl|flash"
    r"|gemm|conv\d?d|fprop|dgrad|wgrad|miopen|rocblas|hipblas|Cijk_|\bck_|ck::|aiter|vllm|sgl|triton"
    r"|(?:volta|turing|ampere|hopper|blackwell|sm\d{2})_|oneapi|dnnl|\bMem(?:cpy|set)\b",
    re.IGNORECASE,
)
"""Matches words of libraries and compilers.

Their kernels have names beyond those that are decoded.
"""
IDENTIFIER = lazy_pattern(r"[A-Za-z_]\w{0,99}")
MAX_NAME_CHARACTERS = 100
MIN_THREADS_OF_BLOCK = 64
"""With fewer threads in a block, the occupancy is not known.

A limit on blocks that no trace has decides it then.
"""


@Rule(
    needs=("launch configurations", "input shapes"),
    remedy=(
        "Compare the kernel's time with that of the library operation for the "
        "same work. To see what limits the kernel, run ncu --set full --kernel-name NAME."
    ),
    thresholds={"dominates": MIN_SHARE, "least_ns": MIN_NS},
    of_kernels=True,
)
def unrecognized_kernel(facts: Facts) -> Iterator[Claim]:
    """Note the kernel that takes most of the time, if it is none of a library.

    It must take MIN_SHARE of the time of all kernels, and MIN_NS.
    """
    kernels = facts.kernels
    if not kernels.is_compute.any():
        return

    name_index = _find_longest_name(kernels)
    name = facts.trace.names[name_index]
    if _is_of_library(name):
        return

    has_name = facts.trace.name[kernels.rows] == name_index
    longest = kernels.is_compute & has_name
    taken_ns = kernels.add_up_ns(longest)
    all_ns = kernels.add_up_ns(kernels.is_kernel)
    if taken_ns < max(MIN_NS, MIN_SHARE * all_ns):
        return

    launches = int(longest.sum())
    is_known = bool(kernels.bounds.is_known[longest].any())

    yield Claim(
        text=f"{_shorten_name(name)} takes {percent(taken_ns, all_ns)} of kernel "
        f"time, {format_share_of_work(facts, taken_ns)} in {plural(launches, 'launch')} "
        f"(mean {duration(taken_ns // launches)}). The kernel is probably "
        "handwritten, because fusetui does not recognize its "
        f"name.{_describe_longest_launch(facts, longest)} "
        f"{KNOWN_WORK if is_known else UNKNOWN_WORK}",
        kernels=longest,
        remedy=_compose_remedy(name),
        why_likely="Only the unrecognized name suggests that the kernel is handwritten.",
    )


KNOWN_WORK: Final = "The kernel's arithmetic and bytes follow from its op and shapes; see the roofline bound."
UNKNOWN_WORK: Final = (
    "The kernel's roofline bound is unknown, because its name does not show what it "
    "computes."
)


def _find_longest_name(kernels: Kernels) -> int:
    """Return the index of the name whose kernels, of those that compute, take longest."""
    computes = kernels.is_compute
    names = kernels.trace.name[kernels.rows[computes]]
    return heaviest_id(names, kernels.effective_ns[computes])


def _is_of_library(name: str) -> bool:
    """Whether a kernel is one of a library or compiler, by its name."""
    decoded = decode(name[:MAX_SEARCHED_CHARS])
    return decoded is not None or OF_LIBRARY.search(name) is not None


def _shorten_name(name: str) -> str:
    """Return the identifier with which a name begins, else the beginning of the name.

    >>> _shorten_name("my_kernel<float, 4>(float*)")
    'my_kernel'
    """
    identifier = IDENTIFIER.match(name)
    return identifier[0] if identifier else printable(name[:MAX_NAME_CHARACTERS])


def _compose_remedy(name: str) -> str:
    """Say what to do about a kernel of this name.

    The text has the options of the profilers that show what limits it.
    """
    identifier = IDENTIFIER.match(name)
    option = f" --kernel-name {identifier[0]}" if identifier else ""
    ncu = f"nvidia: To see what limits the kernel, run ncu --set full{option} --launch-count 1."

    return (
        "Compare the kernel's time with that of a library kernel for the same work, such as "
        "torch.matmul. To record its shapes, wrap the kernel in an op "
        "(torch.library) and set record_shapes=True."
        f"{{{ncu}|amd: To see what limits the kernel, run rocprof-compute profile.}}"
    )


def _describe_longest_launch(facts: Facts, is_selected: Flags) -> str:
    """Describe the blocks and the occupancy of the longest launch, in a sentence.

    It is ` The longest launch has 3,969 blocks of 256 threads for 40 multiprocessors
    ...`, and "" where that was not recorded.

    Args:
        is_selected: True for the kernels of which the longest counts.
    """
    kernels = facts.kernels
    longest_row = kernels.choose_longest_rows(is_selected)[0]
    longest_kernel = position_of(kernels.rows, longest_row)
    launch = find_launch_configuration(kernels.jobs, longest_row)
    blocks = int(kernels.blocks[longest_kernel])
    threads = count_threads(launch)
    if not blocks or not threads:
        return ""

    text = f" The longest launch has {plural(blocks, 'block')} of {plural(threads, 'thread')}"
    multiprocessors = int(kernels.multiprocessors[longest_kernel])
    if multiprocessors:
        text += f" for {count(multiprocessors)} multiprocessors"

    pid = facts.trace.track_of(longest_row).pid
    properties = device_properties(facts.trace).get(pid, {})
    occupancy = compute_occupancy(launch, properties)
    if occupancy is not None:
        text += f"; registers and shared memory allow an occupancy of {percent(occupancy, 1)}"

    return f"{text}."


def count_threads(launch: Mapping[str, Any]) -> int:
    """Return the threads of a block, 0 if they are not known.

    Args:
        launch: The launch configuration of the kernel.
    """
    block = launch.get("block")
    if not isinstance(block, list):
        return 0
    if not all(type(side) is int and side > 0 for side in block):
        return 0

    return math.prod(block)


def compute_occupancy(
    launch: dict[str, Any], properties: dict[str, Any]
) -> float | None:
    """Return the share of the threads of a multiprocessor that can be resident at once.

    Threads, registers and shared memory of a block limit it. None where the trace does
    not have what it takes.

    Args:
        launch: The launch configuration of the kernel.
        properties: Those of the device.
    """
    resident = count_resident_blocks(launch, properties)
    most_threads = properties.get("maxThreadsPerMultiprocessor")
    if resident is None or type(most_threads) is not int or most_threads <= 0:
        return None
    if count_threads(launch) < MIN_THREADS_OF_BLOCK:
        return None

    return min(1.0, resident * count_threads(launch) / most_threads)
