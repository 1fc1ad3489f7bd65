"""One step of a variant: its parts, the check of its result, and its time.

A step is the forward pass, with the backward pass if requested. Its result is checked
against a float32 reference. Its time is measured with the profiler off, in integer ns:
with CUDA events on a GPU, with a clock on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from time import perf_counter_ns
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fusetui.trace.model.quantiles import lower_median, nearest_rank

from .record import StepTime

Answer = Mapping[str, Tensor]
"""What a step computed: `result`, and after a backward pass the gradients by name."""

MAX_INPUT_COPIES = 1024
TOLERANCE = {"float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2}
"""The largest error allowed in a dtype, as a share of the largest absolute value of the
reference."""


@dataclass(frozen=True)
class Piece:
    """A piece of a step. `label` is its name in the trace; `run` takes the result of
    the previous piece, or None for the first one."""

    label: str
    run: Callable[[Any], Any]


Step = Sequence[Piece]


def run_step(step: Step) -> Any:
    """Run the pieces of a step one after the other, each with the result of the one
    before. Returns the result of the last piece; None for no pieces."""
    value = None
    for piece in step:
        value = piece.run(value)
    return value


def forward_step(
    call: Callable[..., Any], label: str, copies: Sequence[Sequence[Any]]
) -> Step:
    """Return a step of one piece, `LABEL_fwd`, which returns `call(*inputs)`. `copies`
    are equal inputs; each run of the step takes the next copy, and after the last one
    the first again."""
    next_inputs = cycle(copies)
    return (Piece(f"{label}_fwd", lambda _: call(*next(next_inputs))),)


def training_step(
    call: Callable[..., Any],
    label: str,
    copies: Sequence[Sequence[Any]],
    gradient: Tensor | None,
) -> Step:
    """Return a step of two pieces, `LABEL_fwd` and `LABEL_bwd`. It returns the result
    of the forward pass and leaves the gradients in the leaf tensors.

    All gradients are removed before, and no optimizer runs. `gradient` is that of the
    result; None means ones. The leaf tensors are those of the inputs and the parameters
    of a module. A plain function may hide others, for instance in a closure, which are
    found behind the first result.
    """
    next_inputs = cycle(copies)
    hidden: list[Tensor] | None = None  # until the first result is there

    def forward(_: object) -> Any:
        inputs = next(next_inputs)
        for tensor in (
            *_differentiable_inputs(inputs),
            *_named_parameters(call).values(),
            *(hidden or ()),
        ):
            tensor.grad = None
        return call(*inputs)

    def backward(result: Tensor) -> Tensor:
        """Runs the backward pass; the first time, it finds the hidden leaf tensors."""
        nonlocal hidden
        if hidden is None:
            hidden = find_leaves(result)
            for tensor in hidden:
                tensor.grad = None
        result.backward(torch.ones_like(result) if gradient is None else gradient)
        return result

    return (Piece(f"{label}_fwd", forward), Piece(f"{label}_bwd", backward))


def find_leaves(result: object) -> list[Tensor]:
    """Return the leaf tensors to which a backward pass from this result gives a
    gradient. Empty without autograd."""
    leaves: list[Tensor] = []

    nodes: list[Any] = [getattr(result, "grad_fn", None)]
    visited: set[Any] = {None}
    while nodes:
        node = nodes.pop()
        if node in visited:
            continue
        visited.add(node)
        leaf = getattr(node, "variable", None)  # only nodes that accumulate have it
        if isinstance(leaf, Tensor):
            leaves.append(leaf)
        nodes += [next_node for next_node, _ in node.next_functions]

    return leaves


def copy_answer(
    result: object, inputs: Sequence[Any], call: Callable[..., Any]
) -> Answer:
    """Return copies of what a step computed, by name.

    A result of one tensor is `result`; the tensors of nested lists, tuples and dicts
    are `result 0`, `result 1` and so on. The gradients of inputs are `input 0` and so
    on, and those of parameters have the parameter's name. What has no gradient is left
    out.
    """
    results = list(_flatten_tensors(result))
    tensors: dict[str, Tensor] = {}
    if len(results) == 1:
        tensors["result"] = results[0]
    else:
        for number, tensor in enumerate(results):
            tensors[f"result {number}"] = tensor

    leaves = {
        f"input {number}": leaf
        for number, leaf in enumerate(_differentiable_inputs(inputs))
    }
    leaves |= _named_parameters(call)
    for name, leaf in leaves.items():
        if leaf.grad is not None:
            tensors[name] = leaf.grad

    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def input_copies(
    inputs: Sequence[Tensor], cache_bytes: int, backward: bool
) -> list[list[Tensor]]:
    """Return so many copies of the inputs that together they exceed a cache. A step
    that takes the next copy never finds its inputs in the cache.

    There are at most 1024 copies, and one if `cache_bytes` is 0. With `backward`, the
    copies get gradients.
    """
    bytes_per_copy = sum(tensor.nbytes for tensor in inputs)
    count = min(cache_bytes // max(bytes_per_copy, 1) + 1, MAX_INPUT_COPIES)
    copies = []
    for _ in range(count):
        copies.append([tensor.clone().requires_grad_(backward) for tensor in inputs])
    return copies


def weight_bytes(call: Callable[..., Any]) -> int | None:
    """Bytes of a module's parameters and buffers; None for a plain function."""
    if not isinstance(call, torch.nn.Module):
        return None
    return sum(int(tensor.nbytes) for tensor in (*call.parameters(), *call.buffers()))


def _named_parameters(call: Callable[..., Any]) -> dict[str, Tensor]:
    """Return the parameters of a module by name, without the prefix that torch.compile
    adds. Empty for a plain function."""
    if not isinstance(call, torch.nn.Module):
        return {}
    return {
        name.removeprefix("_orig_mod."): parameter
        for name, parameter in call.named_parameters()
    }


def _differentiable_inputs(inputs: Sequence[Any]) -> list[Tensor]:
    """Return the inputs that get gradients: leaf tensors that require them."""
    return [
        value
        for value in inputs
        if isinstance(value, Tensor) and value.is_leaf and value.requires_grad
    ]


def _flatten_tensors(value: object) -> Iterator[Tensor]:
    """Yield the tensors of nested lists, tuples and dicts, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _flatten_tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _flatten_tensors(item)


class WrongResultError(Exception):
    """A variant's result differs from the reference by more than its dtype explains."""


class Errors(NamedTuple):
    """How far an answer is from another one; None where nothing was compared.

    `result` is the largest absolute error of the result. `gradient` is the largest
    error of any gradient, as a share of the largest value of that gradient.
    """

    result: float | None
    gradient: float | None


def check_answer(found: Answer, reference: Answer, dtype: str) -> Errors:
    """Return the errors of an answer against the right one.

    A gradient is compared if both answers have one of that name and shape, and it is
    not 0 everywhere. Raises WrongResultError if the result has another shape, or if an
    error exceeds the tolerance of the dtype or is NaN.
    """
    result_error = check_tensor(found["result"], reference["result"], dtype)

    gradient_shares = []
    for name, gradient in found.items():
        if name.startswith("result") or name not in reference:
            continue
        expected = reference[name]
        if gradient.shape != expected.shape:
            continue
        largest_value = largest(expected)
        if largest_value:
            error = check_tensor(gradient, expected, dtype, f"the gradient of {name}")
            gradient_shares.append(error / largest_value)

    return Errors(result=result_error, gradient=max(gradient_shares, default=None))


def compare_answer(found: Answer, reference: Answer) -> float | None:
    """Return the largest error of the result without judging it, for functions that
    need not compute the same. None if the results differ in number or shape."""
    results = _select_results(found)
    expected = _select_results(reference)
    shapes = [(name, tensor.shape) for name, tensor in results.items()]
    if shapes != [(name, tensor.shape) for name, tensor in expected.items()]:
        return None
    errors = [largest_error(results[name], expected[name]) for name in results]
    return max(errors, default=None)


def _select_results(answer: Answer) -> Answer:
    """An answer without its gradients."""
    return {
        name: tensor for name, tensor in answer.items() if name.startswith("result")
    }


def check_tensor(
    result: Tensor, reference: Tensor, dtype: str, what: str = "its result"
) -> float:
    """Return the largest absolute error of a tensor, which `what` names in error
    messages. Raises WrongResultError if the shapes differ, or if the error is NaN or
    exceeds the tolerance of the dtype."""
    if result.shape != reference.shape:
        shapes = f"{tuple(result.shape)} instead of {tuple(reference.shape)}"
        raise WrongResultError(f"{what} has the shape {shapes}.")

    error = largest_error(result, reference)
    allowed = TOLERANCE[dtype] * largest(reference)
    if not error <= allowed:  # also if it is NaN
        raise WrongResultError(
            f"{what} differs from the float32 reference by {error:.3g}, "
            f"more than the {allowed:.3g} that {dtype} explains."
        )

    return error


def largest_error(result: Tensor, reference: Tensor) -> float:
    """Return the largest absolute difference of two tensors, computed in float32. It is
    nan if any element is nan."""
    return largest(result.float() - reference.float())


def largest(tensor: Tensor) -> float:
    """The largest absolute value; 0 for a tensor without elements."""
    return float(tensor.float().abs().max()) if tensor.numel() else 0.0


Call = Callable[[], object]

WARM_UP_NS = 200_000_000
"""The shortest time of warming up."""
WARM_UP_LIMIT_NS = 2_000_000_000
"""Warming up ends after this time, even if step times are not stable."""
MIN_WARM_UP_STEPS = 3
WINDOW_STEPS = 10
MAX_SETTLED_CHANGE = 0.05
"""Step times are stable if the median of the last window of steps differs from that of
the window before it by at most this share."""
MIN_SAMPLES = 10
MAX_SAMPLES = 500
"""Of the time per step: how many steps are timed."""


@dataclass(frozen=True)
class Timing:
    """The time per step, and whether step times were stable when timing began."""

    step_ns: StepTime
    warm_up_steps: int
    settled: bool


def time_steps(call: Call, device_kind: str, seconds: float) -> Timing:
    """Warm up until step times are stable, then time single steps for about `seconds`.
    Returns the time per step in ns, and whether step times became stable."""
    warm_up_ns = _warm_up(call, make_synchronizer(device_kind))

    count = sample_count(step_ns=warm_up_ns[-1], budget_ns=round(seconds * 1e9))
    if device_kind == "cuda":
        samples_ns = _time_on_gpu(call, count)
    else:
        samples_ns = _time_on_cpu(call, count)

    return Timing(
        step_ns=summarize(samples_ns),
        warm_up_steps=len(warm_up_ns),
        settled=is_settled(warm_up_ns),
    )


def make_synchronizer(device_kind: str) -> Callable[[], None]:
    """Return a function that waits until the device has done all its work. On a CPU it
    does nothing."""
    return torch.cuda.synchronize if device_kind == "cuda" else lambda: None


def sample_count(step_ns: int, budget_ns: int) -> int:
    """Return how many steps of that duration to time: as many as fit the budget, but
    from 10 to 500."""
    return min(max(budget_ns // max(step_ns, 1), MIN_SAMPLES), MAX_SAMPLES)


def summarize(samples_ns: Sequence[int]) -> StepTime:
    """Return the median and the 10th and 90th percentile of durations in ns. Each of
    them is one of the samples."""
    return StepTime(
        median=lower_median(samples_ns),
        p10=nearest_rank(samples_ns, 10),
        p90=nearest_rank(samples_ns, 90),
        n=len(samples_ns),
    )


def is_settled(durations_ns: Sequence[int]) -> bool:
    """Return whether step times are stable: the medians of the last 10 steps and the 10
    before them differ by at most 5 %. False for fewer than 20 steps."""
    if len(durations_ns) < 2 * WINDOW_STEPS:
        return False
    last = durations_ns[-WINDOW_STEPS:]
    before = durations_ns[-2 * WINDOW_STEPS : -WINDOW_STEPS]
    before_ns = lower_median(before)
    change_ns = abs(lower_median(last) - before_ns)
    return change_ns <= MAX_SETTLED_CHANGE * before_ns


def _warm_up(call: Call, synchronize: Callable[[], None]) -> list[int]:
    """Run steps until their times are stable, or for 2 s at most, and return the
    duration of each in ns."""
    warm_up_begin = perf_counter_ns()
    durations_ns: list[int] = []
    while True:
        begin = perf_counter_ns()
        call()
        synchronize()
        end = perf_counter_ns()
        durations_ns.append(end - begin)
        passed_ns = end - warm_up_begin
        if len(durations_ns) < MIN_WARM_UP_STEPS or passed_ns < WARM_UP_NS:
            continue
        if passed_ns >= WARM_UP_LIMIT_NS or is_settled(durations_ns):
            return durations_ns


def _time_on_cpu(call: Call, count: int) -> list[int]:
    """Return the duration of each of `count` steps in ns, measured with a clock."""
    samples_ns = []
    for _ in range(count):
        begin = perf_counter_ns()
        call()
        samples_ns.append(perf_counter_ns() - begin)
    return samples_ns


def _time_on_gpu(call: Call, count: int) -> list[int]:
    """Return the duration of each of `count` steps in ns, measured with CUDA events.
    Events are read after all steps, so that no step waits for a reading."""
    begins = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
    for begin, end in zip(begins, ends, strict=True):
        begin.record()
        call()
        end.record()

    torch.cuda.synchronize()

    durations_ns = []
    for begin, end in zip(begins, ends, strict=True):
        milliseconds = begin.elapsed_time(end)
        durations_ns.append(round(milliseconds * 1_000_000))

    return durations_ns
