"""What the frames of a stack say of an allocation or a free, once for each stack; and
who holds what lives at a moment: every byte in one row."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntFlag

import msgspec
import numpy as np

from fusetui.analysis.memory.history import BEFORE, History
from fusetui.trace.model.arrays import Flags, Int64s, distinct, summed
from fusetui.trace.program.own_code import is_own
from fusetui.trace.snapshot.columns import Frame, Stacks

BACKWARD = re.compile(r"torch::autograd::(?:python::)?(?:Python)?Engine::")
NODE = re.compile(r"torch::autograd::(?:generated::)?(\w+)::apply\(")
WORKSPACE = re.compile(
    r"::(?:getNewWorkspace|getCUDABlasLtWorkspace|getWorkspace|ProcessGroupNCCL)\b"
    r"|\bWorkspace::Workspace\("
)
TRITON = re.compile(r"(?:site|dist)-packages/triton/")
OPTIMIZER = re.compile(r"torch/optim/(?!lr_scheduler|swa_utils)")
# of torch.optim, or around the step of any Optimizer
STEPS = frozenset({"step", "wrapper"})
CALLS = frozenset(
    {"_call_impl", "_wrapped_call_impl", "_slow_forward", "__call__", "inner"}
)
# stands between a module and its forward
HOOKS = re.compile(r"packages/accelerate/hooks\.py\Z")
LAYERS = re.compile(r"torch/nn/modules/")
MODULE = "torch/nn/modules/module.py"
LOADERS = frozenset({"_apply", "load_state_dict", "_load_from_state_dict"})
INITIALIZERS = frozenset({"__init__", "reset_parameters"})
LOADED = re.compile(
    r"torch/nn/init\.py|packages/safetensors/|packages/transformers/(?:modeling|core_model)_"
)
NONE = 1 << 62
BEFORE_RECORDING, NO_STACK = "before_recording", "no stack"
NO_PYTHON = "no Python frame"


class FrameRole(IntFlag):
    """What one frame is."""

    PYTHON = 1
    OWN = 2  # the person's own code
    BACKWARD = 4  # autograd's engine
    ACCUMULATES = 8  # a gradient
    WORKSPACE = 16
    TRITON = 32
    STEP = 64  # of an optimizer
    ZERO_GRAD = 128
    CALL = 256  # of a module
    WEIGHTS = 512  # a model is moved, initialized or loaded
    LAYER = 1024  # a module of torch.nn


class Evidence(msgspec.Struct, frozen=True, eq=False):
    """Of each stack; the last row is that of -1, no stack. Flags of shape [stacks +
    1]."""

    stacks: Stacks
    marks: Int64s  # of its frames together
    # the number, in Stacks.frames, of the innermost frame of the person's own code
    own: Int64s
    # of the innermost frame that is a module's own, if possible not of torch.nn
    called: Int64s
    python: Int64s  # of the innermost frame of Python; -1 in each: there is none
    in_step: Flags  # in an optimizer's step itself, not in a model that it calls
    in_triton: Flags

    def has(self, mark: FrameRole) -> Flags:
        """Which stacks have such a frame."""
        found: Flags = (self.marks & mark) != 0
        return found

    def code(self, stack: int) -> str:
        """The innermost line of the person's own code, else the part of the backward
        pass, else what library."""
        if self.own[stack] >= 0:
            return self._line(self.own[stack])
        if self.marks[stack] & FrameRole.BACKWARD:  # `backward of BmmBackward0`
            nodes = (NODE.search(frame.name) for frame in self.stacks[stack])
            node = next((one[1] for one in nodes if one and one[1] != "Node"), None)
            return f"backward of {node}" if node else "backward"
        return self._line(self.python[stack]) if self.python[stack] >= 0 else NO_PYTHON

    def module(self, stack: int) -> str:
        """The innermost line of a module's own forward, outside modules of torch.nn;
        what no module was called for is where the code is."""
        return (
            self._line(self.called[stack])
            if self.called[stack] >= 0
            else self.code(stack)
        )

    def _line(self, frame: int) -> str:
        one = self.stacks.frames[frame]
        return f"{one.file}:{one.line} {one.name}"


def evidence(stacks: Stacks) -> Evidence:
    """Looks at each distinct frame once."""
    marks = np.array([_marks(frame) for frame in stacks.frames], np.int64)[stacks.frame]
    if not len(stacks):
        none, no = np.full(1, -1), np.zeros(1, np.bool_)
        return Evidence(stacks, np.zeros(1, np.int64), none, none, none, no, no)
    callees = _callees(marks, stacks)
    inner = _first(callees & (marks & FrameRole.LAYER == 0), stacks)
    inner = np.where(inner < NONE, inner, _first(callees, stacks))
    python = _first(marks & FrameRole.PYTHON != 0, stacks)
    step = _first(marks & FrameRole.STEP != 0, stacks)
    call = _first(marks & (FrameRole.CALL | FrameRole.BACKWARD) != 0, stacks)
    found = np.bitwise_or.reduceat(marks, stacks.start[:-1])
    in_triton = (
        np.append(marks, 0)[np.minimum(python, len(marks))] & FrameRole.TRITON != 0
    )
    places = _first(marks & FrameRole.OWN != 0, stacks), inner, python
    own, called, python = (_frame_at(one, stacks) for one in places)
    in_step, in_triton = np.append(step < call, False), np.append(in_triton, False)
    return Evidence(
        stacks, np.append(found, 0), own, called, python, in_step, in_triton
    )


def _marks(frame: Frame) -> int:
    name, file = frame.name, frame.file.replace("\\", "/")
    found: dict[FrameRole, object] = {}
    if file.endswith(".py") or file.startswith("<"):
        is_layer, is_module = LAYERS.search(file) is not None, file.endswith(MODULE)
        loads = LOADED.search(file) or (is_layer and name in INITIALIZERS)
        found = {
            FrameRole.PYTHON: True,
            FrameRole.OWN: is_own(file),
            FrameRole.TRITON: TRITON.search(file),
            FrameRole.STEP: name in STEPS and OPTIMIZER.search(file),
            FrameRole.ZERO_GRAD: name == "zero_grad",
            FrameRole.CALL: (is_module and name in CALLS) or HOOKS.search(file),
            FrameRole.WEIGHTS: name in LOADERS if is_module else loads,
            FrameRole.LAYER: is_layer,
        }
    else:
        found = {
            FrameRole.BACKWARD: BACKWARD.search(name),
            FrameRole.ACCUMULATES: "AccumulateGrad" in name,
            FrameRole.WORKSPACE: WORKSPACE.search(name),
        }
    return sum(mark for mark, holds in found.items() if holds)


def _callees(marks: Int64s, stacks: Stacks) -> Flags:
    """Which frames are those of a module's own forward: the next one of Python outwards
    is the call of a module."""
    rows = np.flatnonzero(marks & FrameRole.PYTHON)
    stack = np.searchsorted(stacks.start, rows, side="right")
    same = np.append(stack[1:] == stack[:-1], False)
    outwards = np.append(marks[rows[1:]], 0) & FrameRole.CALL != 0
    found = np.zeros(len(marks), np.bool_)
    found[rows] = same & outwards & (marks[rows] & FrameRole.CALL == 0)
    return found


def _first(wanted: Flags, stacks: Stacks) -> Int64s:
    """The place of the innermost wanted frame of each stack in Stacks.frame, or
    NONE."""
    places = np.where(wanted, np.arange(len(wanted)), NONE)
    return np.minimum.reduceat(places, stacks.start[:-1])


def _frame_at(places: Int64s, stacks: Stacks) -> Int64s:
    """The frames at these places, and one more for no stack."""
    found = np.append(stacks.frame, -1)[np.minimum(places, len(stacks.frame))]
    return np.append(found, -1).astype(np.int64)


class Holder(msgspec.Struct, frozen=True):
    """What was allocated at one place, and lives."""

    place: str
    bytes: int
    blocks: int


def held_at(
    history: History, event: int, place_of: Callable[[int], str]
) -> tuple[Holder, ...]:
    """By what a stack means, the largest first."""
    lives = history.lives
    rows = np.flatnonzero(lives.at(event))
    keys = np.where(
        (lives.stack[rows] < 0) & (lives.born[rows] == BEFORE), -2, lives.stack[rows]
    )
    stacks = distinct(keys)
    number = np.searchsorted(stacks, keys)
    sizes, blocks = summed(number, lives.size[rows], len(stacks)), np.bincount(number)
    found: dict[str, Holder] = {}
    for stack, size, count in zip(
        stacks.tolist(), sizes.tolist(), blocks.tolist(), strict=True
    ):
        place = {-2: BEFORE_RECORDING, -1: NO_STACK}.get(stack) or place_of(stack)
        old = found.get(place, Holder(place, 0, 0))
        found[place] = Holder(place, old.bytes + size, old.blocks + count)
    return tuple(sorted(found.values(), key=lambda one: (-one.bytes, one.place)))
