"""Whether a variant's result is right: its largest error against the eager float32 reference."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .step import Answer

TOLERANCE = {"float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2}
"""The largest error allowed, as a share of the largest absolute value of the reference."""


class WrongResultError(Exception):
    """A variant's result differs from the reference by more than its dtype explains."""


@dataclass(frozen=True)
class Errors:
    """`result`: the largest absolute error of the result; `gradients`: the largest error of any
    gradient, as a share of its largest value. None if nothing could be compared."""

    result: float | None
    gradients: float | None


def check_answer(found: Answer, reference: Answer, dtype: str) -> Errors:
    """The errors of a result and of the gradients that both sides have by the same name.

    Raises WrongResultError if the result has another shape, or if an error exceeds the tolerance of
    the dtype or is NaN.
    """
    result = check(found["result"], reference["result"], dtype)
    shares = [
        check(found[name], reference[name], dtype, f"the gradient of {name}")
        / largest(reference[name])
        for name in _gradients(found, reference)
    ]
    return Errors(result, max(shares, default=None))


def compare_answer(found: Answer, reference: Answer) -> Errors:
    """The largest errors, without judging them: for functions that need not compute the same."""
    names = [name for name in found if name.startswith("result")]
    if names != [name for name in reference if name.startswith("result")]:
        return Errors(None, None)
    if not names or any(found[name].shape != reference[name].shape for name in names):
        return Errors(None, None)
    return Errors(max(largest_error(found[name], reference[name]) for name in names), None)


def check(result: Tensor, reference: Tensor, dtype: str, what: str = "its result") -> float:
    """The largest absolute error of a tensor. Raises WrongResultError as `check_answer`."""
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
    """The largest absolute difference, computed in float32; nan if any element is nan."""
    return largest(result.float() - reference.float())


def largest(tensor: Tensor) -> float:
    """The largest absolute value; 0 for a tensor without elements."""
    return float(tensor.float().abs().max()) if tensor.numel() else 0.0


def _gradients(found: Answer, reference: Answer) -> list[str]:
    """Names of gradients that can be compared; one that is 0 everywhere has no relative error."""
    names = [name for name in found if name in reference and not name.startswith("result")]
    same = [name for name in names if found[name].shape == reference[name].shape]
    return [name for name in same if largest(reference[name])]
