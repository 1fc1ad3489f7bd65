"""One step: forward, backward, rotated inputs."""

from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="steps run torch")
step = pytest.importorskip("fusetui.capture.step", reason="needs torch")
pytestmark = pytest.mark.torch


def test_every_step_takes_the_next_copy() -> None:
    parts = step.forward_step(lambda x: x, "f", [[1], [2]])
    assert [step.run_step(parts) for _ in range(3)] == [1, 2, 1]


def test_a_training_step_starts_without_gradients() -> None:
    layer, copies = (
        torch.nn.Linear(2, 1),
        step.input_copies([torch.ones(3, 2)], 0, True),
    )
    parts = step.training_step(layer, "f", copies, None)
    for _ in range(2):
        step.run_step(parts)
    assert layer.bias.grad.item() == 3
    assert [part.label for part in parts] == ["f_fwd", "f_bwd"]


@pytest.mark.parametrize(
    "hide", [lambda f: lambda x: f(x), lambda f: partial(f.forward)]
)
def test_gradients_of_parameters_that_a_function_hides_are_cleared(hide: Any) -> None:
    layer, copies = (
        torch.nn.Linear(2, 1),
        step.input_copies([torch.ones(3, 2)], 0, True),
    )
    layer.bias.grad = torch.tensor([7.0])
    parts = step.training_step(hide(layer), "f", copies, None)
    for _ in range(2):
        step.run_step(parts)
        assert layer.bias.grad.item() == 3


@pytest.mark.parametrize(
    ("cache_bytes", "copies"), [(0, 1), (39, 1), (40, 2), (10**9, 1024)]
)
def test_copies_exceed_the_cache_together(cache_bytes: int, copies: int) -> None:
    assert len(step.input_copies([torch.ones(10)], cache_bytes, False)) == copies


def test_an_answer_holds_result_and_gradients_by_name() -> None:
    layer, copies = (
        torch.nn.Linear(2, 1),
        step.input_copies([torch.ones(3, 2)], 0, True),
    )
    result = step.run_step(step.training_step(layer, "f", copies, None))
    assert list(step.copy_answer(result, copies[0], layer)) == [
        "result",
        "input 0",
        "weight",
        "bias",
    ]


@pytest.mark.parametrize(
    ("result", "names"),
    [
        ((1, [torch.ones(1)]), ["result"]),
        ({"a": torch.ones(1), "b": torch.ones(1)}, 2),
        (None, 0),
    ],
)
def test_tensors_are_found_in_nested_results(result: Any, names: Any) -> None:
    wanted = [f"result {i}" for i in range(names)] if isinstance(names, int) else names
    assert list(step.copy_answer(result, (), len)) == wanted


def test_an_answer_does_not_change_with_the_tensor() -> None:
    tensor = torch.ones(1)
    answer = step.copy_answer(tensor, (), len)
    tensor.zero_()
    assert answer["result"].item() == 1


def test_a_function_has_no_weights() -> None:
    assert step.weight_bytes(len) is None
    assert step.weight_bytes(torch.nn.Linear(2, 1)) == 12
