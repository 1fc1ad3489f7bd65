"""Runs a program under the profiler of the source: wait 1, warm up 1, record 3 steps.

As `fusetui capture` does, every step waits for the GPU before it ends, so that its
kernels run within it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from docs.lessons.machine import Machine, Recorded, Slice
from docs.lessons.programs import PROGRAMS

SKIPPED, STEPS = 2, 3
_ENTER = (
    "torch/autograd/profiler.py(918): __enter__",
    "torch/_ops.py(1267): __call__",
    "<built-in method _record_function_enter_new of pybind11_builtins.pybind11_detail_function_"
    "record_v1_system_libstdcpp_gxx_abi_1xxx_use_cxx11_abi_1 object at 0x7f2100000200>",
)
_EXIT = ("torch/autograd/profiler.py(932): __exit__", "torch/_ops.py(1089): __call__")
_SYNCHRONIZE = (
    "torch/cuda/__init__.py(1120): synchronize",
    "<built-in function _cuda_synchronize>",
)


def run(name: str) -> Recorded:
    """What the profiler records of a lesson's program."""
    program = PROGRAMS[name]
    m = Machine()
    step = program.prepare(m)
    for _ in range(SKIPPED):
        step(m)
        m.synchronize()
    m.start_recording()
    with m.frame(f"{program.script}(58): <module>"):
        for number in range(SKIPPED, SKIPPED + STEPS):
            with _annotated(m, f"ProfilerStep#{number}"):
                with _annotated(m, program.label):
                    step(m)
                with m.frames(*_SYNCHRONIZE):
                    m.synchronize()
    m.recorded.end = m.now
    return m.recorded


@contextmanager
def _annotated(m: Machine, name: str) -> Iterator[None]:
    """An annotation begins and ends within frames of the profiler, and so crosses
    them."""
    note: list[Slice] = []
    with m.frames(*_ENTER):
        note.append(m.begin(name))
    yield
    with m.frames(*_EXIT):
        m.end(note[0])
