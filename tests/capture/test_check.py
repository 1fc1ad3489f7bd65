"""A variant's result against the reference."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="compares tensors")
check = pytest.importorskip("fusetui.capture.step", reason="needs torch")
pytestmark = pytest.mark.torch


def test_the_error_is_the_largest_difference() -> None:
    reference = torch.tensor([1.0, -8.0, 2.0])
    result = torch.tensor([1.0, -8.125, 2.0], dtype=torch.bfloat16)
    assert check.check_tensor(result, reference, "bfloat16") == 0.125


def test_the_tolerance_follows_the_dtype() -> None:
    reference, result = torch.tensor([8.0]), torch.tensor([8.125])
    with pytest.raises(
        check.WrongResultError, match=r"by 0\.125, more than the 0\.0008 that"
    ):
        check.check_tensor(result, reference, "float32")


def test_nan_is_wrong() -> None:
    with pytest.raises(check.WrongResultError, match="by nan"):
        check.check_tensor(torch.tensor([torch.nan]), torch.tensor([1.0]), "bfloat16")


def test_another_shape_is_wrong() -> None:
    with pytest.raises(check.WrongResultError, match=r"\(1, 2\) instead of \(2,\)"):
        check.check_tensor(torch.ones(1, 2), torch.ones(2), "bfloat16")


def errors(found: dict[str, list[float]], **reference: list[float]) -> Any:
    tensors = [
        {name: torch.tensor(values) for name, values in side.items()}
        for side in (found, reference)
    ]
    return check.check_answer(*tensors, "bfloat16")


def test_the_error_of_a_gradient_is_a_share() -> None:
    found = {"result": [1.0], "w": [1.01, 4.0], "b": [9.0]}
    assert errors(found, result=[1.0], w=[1.0, 4.0])[1] == pytest.approx(0.0025)


def test_a_wrong_gradient_is_named() -> None:
    with pytest.raises(check.WrongResultError, match="the gradient of w differs"):
        errors({"result": [1.0], "w": [2.0]}, result=[1.0], w=[1.0])


def test_results_that_cannot_be_compared_have_no_error() -> None:
    one, two = {"result": torch.ones(2)}, {"result": torch.ones(3)}
    assert check.compare_answer(one, two) is None


def test_results_are_compared_without_a_judgment() -> None:
    one, two = {"result": torch.ones(2)}, {"result": torch.zeros(2)}
    assert check.compare_answer(one, two) == 1.0
