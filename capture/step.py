"""One step of a variant as labeled pieces, the forward pass and the backward pass if
requested; and whether its result is right: its largest error against the eager float32
reference; and its time with the profiler off, in integer ns: CUDA events on a GPU, a
clock on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from time import perf_counter_ns
from typing import Any

import torch
from torch import Tensor

from fusetui.trace.model.quantiles import lower_median, nearest_rank

from .record import StepTime

Answer = Mapping[str, Tensor]
"""What a step computed: `result`, and after a backward pass the gradients by name."""

MOST_COPIES = 1024
TOLERANCE = {"float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2}
"""The largest error allowed, as a share of the largest absolute value of the
reference."""


@dataclass(frozen=True)
class Piece:
    """A piece of a step with its name in the trace; it takes the result of the previous
    piece."""

    label: str
    run: Callable[[Any], Any]


Step = Sequence[Piece]


def run_step(parts: Step) -> Any:
    """Runs a step and returns the result of its last piece."""
    value = None
    for part in parts:
        value = part.run(value)
    return value


def forward_step(
    call: Callable[..., Any], label: str, copies: Sequence[Sequence[Any]]
) -> Step:
    """Only the forward pass, on the next copy of the inputs each time."""
    feed = cycle(copies)
    return (Piece(f"{label}_fwd", lambda _: call(*next(feed))),)


def training_step(
    call: Callable[..., Any],
    label: str,
    copies: Sequence[Sequence[Any]],
    gradient: Tensor | None,
) -> Step:
    """Forward and backward pass, starting without gradients; no optimizer. `gradient`
    is that of the result; None means ones. A plain function may hide parameters, in a
    closure for instance: those that the first result depends on are known."""
    feed = cycle(copies)
    hidden: list[Tensor] | None = None

    def forward(_: object) -> Any:
        inputs = next(feed)
        for tensor in (*_tensors(inputs), *_parameters(call).values(), *(hidden or ())):
            tensor.grad = None
        return call(*inputs)

    def backward(result: Tensor) -> Tensor:
        nonlocal hidden
        if hidden is None:
            hidden = leaves_behind(result)
            for tensor in hidden:
                tensor.grad = None
        result.backward(torch.ones_like(result) if gradient is None else gradient)
        return result

    return (Piece(f"{label}_fwd", forward), Piece(f"{label}_bwd", backward))


def leaves_behind(result: object) -> list[Tensor]:
    """The tensors that a backward pass from this result gives a gradient; none without
    autograd."""
    found: list[Tensor] = []
    nodes: list[Any] = [getattr(result, "grad_fn", None)]
    seen: set[Any] = {None}
    while nodes:
        if (node := nodes.pop()) in seen:
            continue
        seen.add(node)
        if isinstance(leaf := getattr(node, "variable", None), Tensor):
            found.append(leaf)
        nodes += [parent for parent, _ in node.next_functions]
    return found


def answer(result: object, inputs: Sequence[Any], call: Callable[..., Any]) -> Answer:
    """Copies of what a step computed: its result and the gradients."""
    leaves = list(_leaves(result))
    found: dict[str, Tensor] = {}
    for number, leaf in enumerate(leaves):
        found["result" if len(leaves) == 1 else f"result {number}"] = leaf
    with_gradient = {f"input {i}": tensor for i, tensor in enumerate(_tensors(inputs))}
    with_gradient |= _parameters(call)
    for name, tensor in with_gradient.items():
        if tensor.grad is not None:
            found[name] = tensor.grad
    return {name: tensor.detach().clone() for name, tensor in found.items()}


def rotation(
    inputs: Sequence[Tensor], cache_bytes: int, backward: bool
) -> list[list[Tensor]]:
    """Copies of the inputs that together exceed a cache, so that none of them is still
    cached."""
    size = sum(tensor.nbytes for tensor in inputs)
    count = min(cache_bytes // max(size, 1) + 1, MOST_COPIES)
    return [[t.clone().requires_grad_(backward) for t in inputs] for _ in range(count)]


def weight_bytes(call: Callable[..., Any]) -> int | None:
    """Bytes of a module's parameters and buffers; None for a plain function."""
    if not isinstance(call, torch.nn.Module):
        return None
    return sum(int(tensor.nbytes) for tensor in (*call.parameters(), *call.buffers()))


def _parameters(call: Callable[..., Any]) -> dict[str, Tensor]:
    """The parameters of a module by name, compiled or not; none for a plain
    function."""
    if not isinstance(call, torch.nn.Module):
        return {}
    return {name.removeprefix("_orig_mod."): p for name, p in call.named_parameters()}


def _tensors(inputs: Sequence[Any]) -> list[Tensor]:
    """The inputs that have gradients."""
    return [
        t for t in inputs if isinstance(t, Tensor) and t.is_leaf and t.requires_grad
    ]


def _leaves(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)


class WrongResultError(Exception):
    """A variant's result differs from the reference by more than its dtype explains."""


def check_answer(
    found: Answer, reference: Answer, dtype: str
) -> tuple[float, float | None]:
    """The largest absolute error of the result, and that of any gradient that both
    sides have by the same name, as a share of its largest value. Raises
    WrongResultError if the result has another shape, or if an error exceeds the
    tolerance of the dtype or is NaN."""
    result = check(found["result"], reference["result"], dtype)
    shares = [
        check(gradient, reference[name], dtype, f"the gradient of {name}") / most
        for name, gradient in found.items()
        if name in reference and not name.startswith("result")
        if gradient.shape == reference[name].shape
        and (most := largest(reference[name]))
    ]  # one that is 0 everywhere has no relative error
    return result, max(shares, default=None)


def compare_answer(found: Answer, reference: Answer) -> float | None:
    """The largest error of the result without judging it, for functions that need not
    compute the same; None if it cannot be compared."""
    results = _results(found)
    expected = _results(reference)
    shapes = [(name, tensor.shape) for name, tensor in results.items()]
    if shapes != [(name, tensor.shape) for name, tensor in expected.items()]:
        return None
    errors = [largest_error(results[name], expected[name]) for name in results]
    return max(errors, default=None)


def _results(answer: Answer) -> Answer:
    """An answer without its gradients."""
    return {
        name: tensor for name, tensor in answer.items() if name.startswith("result")
    }


def check(
    result: Tensor, reference: Tensor, dtype: str, what: str = "its result"
) -> float:
    """The largest absolute error of a tensor. Raises WrongResultError as
    `check_answer`."""
    if result.shape != reference.shape:
        shapes = f"{tuple(result.shape)} instead of {tuple(reference.shape)}"
        raise WrongResultError(f"{what} has the shape {shapes}.")
    error = largest_error(result, reference)
    allowed = TOLERANCE[dtype] * largest(reference)
    if not error <= allowed:
        raise WrongResultError(
            f"{what} differs from the float32 reference by {error:.3g}, "
            f"more than the {allowed:.3g} that {dtype} explains."
        )
    return error


def largest_error(result: Tensor, reference: Tensor) -> float:
    """The largest absolute difference, computed in float32; nan if any element is
    nan."""
    return largest(result.float() - reference.float())


def largest(tensor: Tensor) -> float:
    """The largest absolute value; 0 for a tensor without elements."""
    return float(tensor.float().abs().max()) if tensor.numel() else 0.0


Call = Callable[[], object]

WARM_UP_NS, WARM_UP_LIMIT_NS = 200_000_000, 2_000_000_000
"""The minimum and maximum time of warming up; in between, it ends when step times are
stable."""
WINDOW, LARGEST_CHANGE = 10, 0.05
"""Step times are stable if the medians of two windows of steps differ by at most 5
%."""
MIN_SAMPLES, MAX_SAMPLES = 10, 500


@dataclass(frozen=True)
class Timing:
    """The time per step, and whether the step time had settled when measuring began."""

    step_ns: StepTime
    warm_up_steps: int
    settled: bool


def time_steps(call: Call, device_kind: str, seconds: float) -> Timing:
    """Warms up until the step time has settled, then times single steps for
    `seconds`."""
    durations = _warm_up(call, synchronizer(device_kind))
    n = sample_count(durations[-1], round(seconds * 1e9))
    samples = _time_on_gpu(call, n) if device_kind == "cuda" else _time_on_cpu(call, n)
    return Timing(summarize(samples), len(durations), settled(durations))


def synchronizer(device_kind: str) -> Callable[[], None]:
    """A function that waits until the device has done all its work."""
    return torch.cuda.synchronize if device_kind == "cuda" else lambda: None


def sample_count(step_ns: int, budget_ns: int) -> int:
    """The number of steps of that duration that fit the budget, within bounds."""
    return min(max(budget_ns // max(step_ns, 1), MIN_SAMPLES), MAX_SAMPLES)


def summarize(samples_ns: Sequence[int]) -> StepTime:
    """Median and 10th and 90th percentile; each is one of the samples."""
    return StepTime(
        median=lower_median(samples_ns),
        p10=nearest_rank(samples_ns, 10),
        p90=nearest_rank(samples_ns, 90),
        n=len(samples_ns),
    )


def settled(durations: Sequence[int]) -> bool:
    """Whether the last steps took as long as those before them."""
    if len(durations) < 2 * WINDOW:
        return False
    before_ns = lower_median(durations[-2 * WINDOW : -WINDOW])
    last_ns = lower_median(durations[-WINDOW:])
    return abs(last_ns - before_ns) <= LARGEST_CHANGE * before_ns


def _warm_up(call: Call, synchronize: Callable[[], None]) -> list[int]:
    """Runs steps until clocks and caches have settled; returns the duration of each in
    ns."""
    begin = perf_counter_ns()
    durations: list[int] = []
    while True:
        start = perf_counter_ns()
        call()
        synchronize()
        now = perf_counter_ns()
        durations.append(now - start)
        enough = len(durations) >= 3 and now - begin >= WARM_UP_NS
        if enough and (now - begin >= WARM_UP_LIMIT_NS or settled(durations)):
            return durations


def _time_on_cpu(call: Call, n: int) -> list[int]:
    samples = []
    for _ in range(n):
        begin = perf_counter_ns()
        call()
        samples.append(perf_counter_ns() - begin)
    return samples


def _time_on_gpu(call: Call, n: int) -> list[int]:
    """Pairs of events, read after all steps, so that no step waits for a reading."""
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(n)]
    for begin, end in pairs:
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [round(begin.elapsed_time(end) * 1_000_000) for begin, end in pairs]
