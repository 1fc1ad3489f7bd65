"""Derives evidence about allocations from the frames of their stacks.

Each stack is looked at once. The module also lists who holds the live memory of a
moment, with every byte in one row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from enum import IntFlag

import msgspec
import numpy as np

from fusetui.analysis.memory.history import History
from fusetui.trace.model.arrays import (
    Flags,
    Int64s,
    at,
    ends_runs,
    last_at_or_before,
    reduce_groups,
)
from fusetui.trace.model.grouping import grouped
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
NOWHERE = 1 << 62
"""In place of the place of a frame that a stack does not have: beyond all places."""

# holders without code
BEFORE_RECORDING = "before_recording"
NO_STACK = "no stack"
NO_PYTHON = "no Python frame"


class FrameRole(IntFlag):
    """What one frame of a call stack is; a frame may have several roles."""

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
    """What the call stacks of a snapshot say about allocations.

    Arrays have one entry per stack, and a last one for no stack, so that -1 reads that
    entry. Frames are rows of `Stacks.frames`, -1 where there is none.
    """

    stacks: Stacks
    marks: Int64s  # the roles of all its frames, as bits of FrameRole
    own_frame: Int64s  # the innermost frame of the person's own code
    # the innermost frame that is the `forward` of a module, if possible not of torch.nn
    module_frame: Int64s
    python_frame: Int64s  # the innermost frame of Python
    in_step: Flags  # in an optimizer's step itself, not in a model that it calls
    in_triton: Flags  # whether the innermost frame of Python is of Triton

    def mark_stacks_with(self, role: FrameRole) -> Flags:
        """Return which stacks have a frame of a role, or of one of several roles."""
        has_role: Flags = (self.marks & role) != 0
        return has_role

    def describe_code(self, stack: int) -> str:
        """Return where a stack is, as text.

        It is the innermost line of the person's own code, else the part of the backward
        pass, else the innermost line of Python, which is of a library. Without Python
        it is NO_PYTHON.
        """
        if self.own_frame[stack] >= 0:
            return self._describe_frame(self.own_frame[stack])

        if self.marks[stack] & FrameRole.BACKWARD:
            return self._describe_backward(stack)

        if self.python_frame[stack] >= 0:
            return self._describe_frame(self.python_frame[stack])

        return NO_PYTHON

    def _describe_backward(self, stack: int) -> str:
        """Return the innermost node of autograd in a stack.

        The text is `backward of BmmBackward0`, or `backward` if no node is named.
        """
        for frame in self.stacks[stack]:
            node = NODE.search(frame.name)
            if node and node[1] != "Node":  # the class of all nodes
                return f"backward of {node[1]}"
        return "backward"

    def describe_module(self, stack: int) -> str:
        """Return the innermost line of the `forward` of a module in a stack.

        Modules outside of torch.nn are preferred. If no module was called, the result
        is that of `describe_code`.
        """
        if self.module_frame[stack] >= 0:
            return self._describe_frame(self.module_frame[stack])

        return self.describe_code(stack)

    def _describe_frame(self, row: int) -> str:
        """Return a frame, a row of the frames of the snapshot, as `file:line name`."""
        frame = self.stacks.frames[row]
        return f"{frame.file}:{frame.line} {frame.name}"


def derive_evidence(stacks: Stacks) -> Evidence:
    """Work out from call stacks what allocated memory is for.

    E.g. a frame `step` of torch/optim/adam.py shows that a stack is in the step of an
    optimizer. Each distinct frame is looked at once.

    Args:
        stacks: The call stacks of a snapshot; there may be none.
    """
    if not len(stacks):
        return _make_empty_evidence(stacks)

    roles_of_frames = [_determine_roles(frame) for frame in stacks.frames]
    # The roles of each frame of all stacks, one stack after another.
    marks = np.array(roles_of_frames, np.int64)[stacks.frame]

    # Positions in `marks` of the innermost frames of a kind in each stack, or NOWHERE.
    python = _find_innermost_with(FrameRole.PYTHON, marks, stacks)
    own = _find_innermost_with(FrameRole.OWN, marks, stacks)
    step = _find_innermost_with(FrameRole.STEP, marks, stacks)
    pass_of_model = _find_innermost_with(
        FrameRole.CALL | FrameRole.BACKWARD, marks, stacks
    )

    python_or_end = np.minimum(python, len(marks))  # NOWHERE becomes the end
    python_marks = at(marks, python_or_end, missing=0)
    in_triton = python_marks & FrameRole.TRITON != 0

    # An optimizer may run the model itself (a closure): then that lies further inside,
    # at a lower position. Without a pass of the model it is at NOWHERE.
    in_step = step < pass_of_model

    # A stack has the roles of all its frames together.
    marks_of_stacks = reduce_groups(np.bitwise_or, marks, stacks.start[:-1])

    # Each array gets a last entry, which is that of no stack.
    return Evidence(
        stacks=stacks,
        marks=np.append(marks_of_stacks, 0),
        own_frame=_look_up_frames(own, stacks),
        module_frame=_look_up_frames(_find_called_modules(marks, stacks), stacks),
        python_frame=_look_up_frames(python, stacks),
        in_step=np.append(in_step, False),
        in_triton=np.append(in_triton, False),
    )


def _find_called_modules(marks: Int64s, stacks: Stacks) -> Int64s:
    """Find the innermost `forward` of a module in each stack.

    That of a module outside of torch.nn is preferred, even if one of torch.nn lies
    further inside.

    Args:
        marks: The roles of each frame of all stacks, one stack after another.
        stacks: The stacks.

    Returns:
        For each stack a position in `marks`, or NOWHERE.
    """
    is_forward = _mark_module_forwards(marks, stacks)
    is_outside_torch = marks & FrameRole.LAYER == 0
    outside_torch = _find_innermost_frames(is_forward & is_outside_torch, stacks)
    anywhere = _find_innermost_frames(is_forward, stacks)
    return np.where(outside_torch < NOWHERE, outside_torch, anywhere)


def _make_empty_evidence(stacks: Stacks) -> Evidence:
    """Return the evidence of a snapshot without call stacks, in which no stack has any
    role."""
    no_frame = np.full(1, -1)
    never = np.zeros(1, np.bool_)
    return Evidence(
        stacks=stacks,
        marks=np.zeros(1, np.int64),
        own_frame=no_frame,
        module_frame=no_frame,
        python_frame=no_frame,
        in_step=never,
        in_triton=never,
    )


def _determine_roles(frame: Frame) -> int:
    """Return the roles of a frame of a call stack as one number, with a bit for each
    role.

    A *role* tells what the code of the frame does, such as running a backward pass or
    the step of an optimizer.
    """
    file = frame.file.replace("\\", "/")
    is_python = file.endswith(".py") or file.startswith("<")  # such as <stdin>
    if is_python:
        roles = _determine_python_roles(frame.name, file)
    else:
        roles = _determine_native_roles(frame.name)
    return sum(role for role, holds in roles.items() if holds)


def _determine_python_roles(name: str, file: str) -> dict[FrameRole, object]:
    """Return for each role whether a frame of Python has it.

    A *role* tells what code does, such as running the step of an optimizer.

    Args:
        name: The function of the frame.
        file: Its file, with forward slashes.
    """
    is_layer = LAYERS.search(file) is not None
    is_base_of_modules = file.endswith(MODULE)
    if is_base_of_modules:
        handles_weights = name in LOADERS
    else:
        initializes_layer = is_layer and name in INITIALIZERS
        handles_weights = initializes_layer or LOADED.search(file) is not None

    calls_module = is_base_of_modules and name in CALLS
    return {
        FrameRole.PYTHON: True,
        FrameRole.OWN: is_own(file),
        FrameRole.TRITON: TRITON.search(file),
        FrameRole.STEP: name in STEPS and OPTIMIZER.search(file),
        FrameRole.ZERO_GRAD: name == "zero_grad",
        FrameRole.CALL: calls_module or HOOKS.search(file),
        FrameRole.WEIGHTS: handles_weights,
        FrameRole.LAYER: is_layer,
    }


def _determine_native_roles(name: str) -> dict[FrameRole, object]:
    """Return for each role whether it holds for a frame of C++."""
    return {
        FrameRole.BACKWARD: BACKWARD.search(name),
        FrameRole.ACCUMULATES: "AccumulateGrad" in name,
        FrameRole.WORKSPACE: WORKSPACE.search(name),
    }


def _mark_module_forwards(marks: Int64s, stacks: Stacks) -> Flags:
    """Return which frames are the `forward` of a module itself.

    These are frames of Python whose caller is the code by which torch calls modules.

    Args:
        marks: The roles of each frame of all stacks, one stack after another.
        stacks: The stacks.

    Returns:
        One flag per entry of `marks`.
    """
    python_frames = np.flatnonzero(marks & FrameRole.PYTHON)
    calls_module = marks[python_frames] & FrameRole.CALL != 0

    # Stacks list their innermost frame first: the caller of a frame is the next frame
    # of Python in the same stack.
    stack = last_at_or_before(stacks.start, python_frames)
    has_caller = ~ends_runs(stack)
    is_called_as_module = has_caller & np.roll(calls_module, -1)

    is_forward = np.zeros(len(marks), np.bool_)
    is_forward[python_frames] = is_called_as_module & ~calls_module
    return is_forward


def _find_innermost_with(roles: int, marks: Int64s, stacks: Stacks) -> Int64s:
    """Return for each stack the position in `marks` of its innermost frame with one of
    some roles, or NOWHERE.

    Args:
        roles: The roles, as bits of FrameRole.
        marks: The roles of each frame of all stacks, one stack after another.
        stacks: The stacks.
    """
    has_role = marks & roles != 0
    return _find_innermost_frames(has_role, stacks)


def _find_innermost_frames(is_wanted: Flags, stacks: Stacks) -> Int64s:
    """Return for each stack the position in `stacks.frame` of its innermost wanted
    frame, or NOWHERE. `is_wanted` has a flag for each entry of `stacks.frame`."""
    positions = np.where(is_wanted, np.arange(len(is_wanted)), NOWHERE)

    # Frames are listed innermost first, so the least position of a stack counts.
    return reduce_groups(np.minimum, positions, stacks.start[:-1])


def _look_up_frames(positions: Int64s, stacks: Stacks) -> Int64s:
    """Return the frames at some positions, and -1 at the end for no stack.

    Args:
        positions: Positions in `stacks.frame`; NOWHERE gives -1.
        stacks: The stacks.
    """
    position_or_end = np.minimum(positions, len(stacks.frame))
    frames = at(stacks.frame, position_or_end, missing=-1)
    return np.append(frames, -1).astype(np.int64)


class Holder(msgspec.Struct, frozen=True):
    """The live allocations of one line of code, or of what else allocated them."""

    place: str
    bytes: int
    blocks: int


# in place of a stack, of what was allocated before recording began
_BEFORE_RECORDING_STACK = -2


def group_live_allocations(
    history: History, event: int, place_of: Callable[[int], str]
) -> tuple[Holder, ...]:
    """Return who holds the memory that is live after an event, the largest holder
    first.

    A *holder* is e.g. the line of code or the module that allocated the memory: two
    blocks of 1 and 2 MB from model.py:7 are 2 blocks and 3 MB of that line.

    Args:
        history: The history of the device.
        event: The event, or BEFORE for the moment before the first one.
        place_of: Returns the holder for a call stack. Stacks of the same holder
            are put together.

    Returns:
        The holders. Memory without a call stack belongs to BEFORE_RECORDING, if
        it was there before the first event, or else to NO_STACK.
    """
    allocations = history.allocations
    is_live = allocations.mark_live_after(event)
    stack = allocations.stack[is_live]
    is_early = allocations.is_early[is_live]
    stack = np.where((stack < 0) & is_early, _BEFORE_RECORDING_STACK, stack)

    # Sum up by stack first, so that each stack is named only once.
    by_stack = grouped(stack)
    bytes_of_stack = by_stack.sums(allocations.size[is_live])

    bytes_of_holder: Counter[str] = Counter()
    blocks_of_holder: Counter[str] = Counter()
    for stack_number, size, blocks in zip(
        by_stack.keys.tolist(),
        bytes_of_stack.tolist(),
        by_stack.counts.tolist(),
        strict=True,
    ):
        name = _name_holder(stack_number, place_of)
        bytes_of_holder[name] += size
        blocks_of_holder[name] += blocks

    holders = [
        Holder(place=name, bytes=size, blocks=blocks_of_holder[name])
        for name, size in bytes_of_holder.items()
    ]
    return tuple(sorted(holders, key=lambda holder: (-holder.bytes, holder.place)))


def _name_holder(stack: int, place_of: Callable[[int], str]) -> str:
    """Return the holder for a stack, or for what stands in place of one."""
    if stack == _BEFORE_RECORDING_STACK:
        return BEFORE_RECORDING
    if stack < 0:
        return NO_STACK
    return place_of(stack)
