"""Run a program under the profiler like the source: wait 1 step, warm up 1, record
3.

As in `fusetui capture`, every step waits for the GPU before it ends, so its kernels
run within the step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from docs.lessons.machine import Machine, Recorded
from docs.lessons.programs import PROGRAMS

SKIPPED_STEPS = 2
STEPS = 3
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
    """Return the recording of a lesson's program."""
    program = PROGRAMS[name]
    machine = Machine()
    step = program.prepare(machine)
    for _ in range(SKIPPED_STEPS):
        step(machine)
        machine.synchronize()
    machine.start_recording()
    with machine.frame(f"{program.script}(58): <module>"):
        for number in range(SKIPPED_STEPS, SKIPPED_STEPS + STEPS):
            with _annotated(machine, f"ProfilerStep#{number}"):
                with _annotated(machine, program.label):
                    step(machine)
                with machine.frames(*_SYNCHRONIZE):
                    machine.synchronize()
    machine.recorded.end = machine.now
    return machine.recorded


@contextmanager
def _annotated(machine: Machine, name: str) -> Iterator[None]:
    """Annotate the block. The annotation begins and ends inside different profiler
    frames, so it overlaps them only partly."""
    with machine.frames(*_ENTER):
        annotation = machine.begin(name)
    yield
    with machine.frames(*_EXIT):
        machine.end(annotation)
