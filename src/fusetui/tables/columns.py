"""The columns of every table: name, type and meaning. A table has all of them for every trace.

Names are those of `--json`, without dots; one differs where SQL reserves it or another column has
it. Ids are texts, because a trace may name a process or a device by any text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fusetui.analysis.why.model import IDLE
from fusetui.tables.table import Kind, Spec

Specs = tuple[Spec, ...]
KINDS: Final[dict[str, Kind]] = {"int": "int", "float": "float", "bool": "bool", "text": "text"}


def specs(lines: str) -> Specs:
    """A column per line: name, type, meaning. `*` after the name: a person sees it first; `?` after
    the type: some rows may have no value."""

    def found() -> Iterator[Spec]:
        for line in lines.strip().splitlines():
            name, kind, meaning = line.split(maxsplit=2)
            optional, first = kind.endswith("?"), name.endswith("*")
            yield Spec(name.rstrip("*"), KINDS[kind.rstrip("?")], meaning, optional, first)

    return tuple(found())


SPREAD: Specs = specs("""
    total_ns*        int   the sum of their durations
    count*           int   how many there are
    mean_ns*         int   the mean duration
    min_ns           int   the shortest
    p10_ns           int   the duration that 10 % of them do not exceed
    median_ns*       int   the median
    p90_ns           int   the duration that 90 % of them do not exceed
    max_ns           int   the longest
""")

WORK: Specs = specs("""
    effective_ns     int    total_ns without the time that a kernel overlaps its predecessor
    flop             float? FLOP of the kernels for which they are known
    flop_ns          int    the durations of those
    bytes            float? the least traffic of the kernels for which it is known
    bytes_ns         int    the durations of those
    share_of_peak*   float? the least time that the peaks of the device allow, divided by share_ns
    share_of_peak_effective  float? the same, divided by the effective durations
    share_ns         int    the durations of the kernels whose share is known
    bound            text?  compute or memory: what limits them
    waves            float? blocks divided by those that the GPU holds at once, on average
""")

DECODED: Specs = specs("""
    short*           text    the short name that the app shows
    family           text?  the naming scheme, which usually means the library
    kernel_op        text?  what it does: gemm, attention, norm, ...; `op` of `decode`
    arch             text?  the target that it was built for: sm80
    arch_name        text?  the name of that target: Ampere
    dtype_a          text?  the type of A
    dtype_b          text?  the type of B
    dtype_acc        text?  the type of the accumulator
    dtype_out        text?  the type of the result
    dtype            text?  the element type of a functor or a collective
    math             text?  the type of the arithmetic, if it differs from the stored type
    tile_m           int?   rows of the tile of one block
    tile_n           int?   its columns
    tile_k           int?   how much of K a step takes
    stages           text?  the number of pipeline stages
    layout           text?  BLAS letters of A and B, or the layout of a convolution
    mma              text?  the shape of the matrix instruction
    mma_mn           text?  the same without K
    align            int?   the alignment of the operands, in elements
    cluster          text?  the shape of a cluster, in blocks
    split_k          text?  K is split over blocks: true, or the factor
    stream_k         bool?  K is split by stream-K
    role             text?  the kernel is a helper of another one: splitk_reduce
    epilogue         text?  what can be fused into the store
    pass             text?  fwd or bwd; fprop, dgrad or wgrad of a convolution
    head_dim         int?   of attention
    causal           bool?  of attention: with a causal mask
    local            bool?  of attention: limited to a window
    functor          text?  what computes an element
    vec              int?   elements per vector load
    fused_ops        text?  the ops that Inductor fused, a JSON list
    kernel_category  text?  Inductor's kind of kernel
    collective       text?  of communication, as spelled in the name
    redop            text?  its reduction
    algo             text?  its algorithm
    proto            text?  its protocol
    direction        text?  of a copy: HtoD
""")

NAME: Specs = specs("name*  text  the name in full, as the trace has it")
INPUTS: Specs = specs("""
    shapes*          text?  the shapes of the inputs of the op, a JSON list
    dtypes           text?  their types, a JSON list
""")
OP: Specs = specs("op*  text?  the CPU op that launched them")
BY: dict[str, Specs] = {
    "name": NAME,
    "op": OP,
    "shape": (*NAME, *OP, *INPUTS),
    "module": specs("module*  text?  the kind of module, or the annotation, that they belong to"),
    "family": specs("family*  text?  the naming scheme, which usually means the library"),
    "stream": specs("""
        device*      text   the number of the GPU
        stream*      text   the number of the stream
    """),
    "step": specs("step*  text?  the step that launched them"),
}
"""What identifies a group of kernels, by what they are grouped by."""


def kernel_columns(by: str) -> Specs:
    """Groups of kernels; what the name says only where they have one."""
    return (*BY[by], *SPREAD, *WORK, *(DECODED if by in ("name", "shape") else ()))


def op_columns(by: str) -> Specs:
    """Groups of CPU ops."""
    return (*NAME, *(INPUTS if by == "shape" else ()), *SPREAD, *OF_OPS)


OF_OPS: Specs = specs("""
    self_ns*         int   total_ns without the ops inside it; total_ns has no op in itself
    gpu_ns*          int   the durations of the GPU events launched under it
    kernels*         int   the kernels launched under it
    captured         bool  whether these ops captured the kernels of a graph
""")

MODULES: Specs = specs("""
    path*            text  the names from the outermost module or annotation on
    module           text  the last of them
    kind*            text  module or annotation
    level            int   how deep it lies; 0 is outermost
    count*           int   its calls
    gpu_ns*          int   the durations of its GPU events, those of its backward work too
    gpu_self_ns*     int   without modules inside it
    gpu_backward_ns  int   the part of gpu_ns that is backward work
    gpu_recompute_ns int   the part of gpu_ns that is forward work done once more
    kernels*         int   its kernels
    kernels_self     int   without modules inside it
    cpu_ns*          int   its time on the CPU
    cpu_self_ns      int   without modules inside it
""")

LINES: Specs = specs("""
    file*            text  the source file
    line*            int   the line of the def; with `--by line` that of the call
    function*        text  the name of the function
    count*           int   its calls
    cpu_ns*          int   its time on the CPU
    cpu_self_ns      int   without functions that it called
    gpu_ns*          int   the durations of its GPU events, those of its backward work too
    gpu_self_ns      int   without functions that it called
    gpu_backward_ns  int   the part of gpu_ns that is backward work
    gpu_recompute_ns int   the part of gpu_ns that is forward work done once more
    kernels*         int   its kernels
    kernels_self     int   without functions that it called
    idle_ns*         int?  idle time of the GPU because of it
    idle_self_ns     int?  without functions that it called
""")

GAPS: Specs = (
    *specs("""
    device           text  the number of the GPU
    start_ns*        int   when it begins, after the start of the trace
    dur_ns*          int   how long the GPU was idle
    mostly*          text  the reason with the most of that time
    previous         text? the GPU event before it
    next*            text  the GPU event that ends it
    op*              text? the CPU op during most of the time before the launch
    annotation       text? the annotation likewise
    module           text? the module likewise
    frame            text? the Python frame likewise
    drained_by       text? the call that waited for the GPU when the gap began
    row              int   the row of slices of the GPU event that ends it
    launch           int?  the row of slices of its launch call
    """),
    *(Spec(f"idle_{name}_ns", "int", f"of dur_ns: {IDLE[name].sentence}") for name in IDLE),
)

LAUNCHES: Specs = specs("""
    process*         text   the process
    thread*          text   the thread
    name*            text?  the launch call
    count*           int    its calls
    total_ns*        int    the sum of their durations
    mean_ns*         int    the mean duration
    p99_ns           int    the duration that 99 % of them do not exceed
    max_ns           int    the longest
    share*           float? total_ns divided by the span of the thread
    events*          int    the GPU events that they launched
""")

COLLECTIVES: Specs = specs("""
    collective*      text  all_reduce, all_gather, ...
    process_group*   text  the name of the process group
    group_size*      int?  its ranks
    dtype*           text? the type of the elements
    bytes*           int?  the size, as nccl-tests counts it
    sequence         int?  its number in the group
    peer             int?  the other rank of a send or a receive
    issued_ns*       int   when it was launched, after the start of the trace
    start_ns         int   when it began
    dur_ns*          int   how long it took
    kernel           text  the kernel, or the annotation of a collective on the CPU
    row              int   its row of slices
""")

FINDINGS: Specs = specs("""
    rule*            text   the rule that found it; docs/why.md has them
    at_stake_ns*     int?   an upper bound of what it may save; none for a note
    share*           float? at_stake_ns divided by the span or the median step
    certainty*       text   certain or likely
    why_likely       text?  why it is only likely
    text*            text   what it says
    remedy           text?  what to try; `try` of `why --json`
    part_of          text?  the rule of another finding, whose time holds this one's
    evidence_rows    text   rows of slices that show it, a JSON list
""")

STEPS: Specs = specs("""
    number*          int   the number of the step
    name*            text  its annotation, or #k
    start_ns*        int   when it begins, after the start of the trace
    dur_ns*          int   how long it takes
    kernels*         int   the kernels that it launched
    gpu_busy_ns*     int   how long they, and its copies, kept a GPU busy
""")

SLICES: Specs = specs("""
    row*             int   its number
    name*            text  its name in full
    category         text  `cat` of the trace
    kind*            text  op, call, kernel, memcpy, memset, python, annotation, ...
    start_ns*        int   when it begins, after the start of the trace
    dur_ns*          int   how long it takes
    lane*            text  the label of its lane
    process          text? of a CPU thread: the process
    thread           text? of a CPU thread: its number
    device           text? of a GPU event: the number of the GPU
    stream           text? of a GPU event: the number of the stream
    depth            int   how many slices of its lane are around it
    parent           int?  the row of the innermost of those
    correlation      int?  what links a GPU event to its launch call
    launch           int?  of a GPU event: the row of its launch call
    op*              text? the CPU op around it, or around its launch call
    step*            int?  the number of the step that it is in, or that launched it
    short            text? of a GPU event: the short name
    family           text? of a kernel: the naming scheme
    kernel_op        text? of a kernel: what it does
    dtype            text? of a kernel: the types that its name tells
    collective       text? of a kernel that communicates
""")

FILE = Spec("file", "text", "the trace, as it was named; where several were given", False, True)
