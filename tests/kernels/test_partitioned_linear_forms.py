"""The forms of n linear layers: one result, one set of gradients, weights that
convert."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the forms are torch modules")
forms = pytest.importorskip("fusetui.kernels.partitioned_linear", reason="needs torch")
pytestmark = pytest.mark.torch

ON_A_CPU = [forms.Loop, forms.Big, forms.Masked, forms.Bmm]
BATCH, N, IN, OUT = 5, 3, 4, 2
named = pytest.mark.parametrize("form", ON_A_CPU, ids=lambda form: form.__name__)


@pytest.fixture
def loop() -> Any:
    torch.manual_seed(1)
    return forms.random_loop(N, IN, OUT).double()


def trained(form: Any) -> Any:
    """The form with its gradients in place of its weights."""
    x = torch.linspace(-1, 1, BATCH * N * IN, dtype=torch.float64).reshape(BATCH, N, IN)
    (form(x) ** 2).sum().backward()
    for parameter in form.parameters():
        parameter.data = parameter.grad
    return form


@named
def test_weights_come_back_from_every_form(form: Any, loop: Any) -> None:
    back = forms.convert(forms.convert(loop, form), forms.Loop)
    for got, want in zip(back.layers(), loop.layers(), strict=True):
        assert torch.equal(got, want)


@named
def test_every_form_has_the_gradients_of_the_loop(form: Any, loop: Any) -> None:
    converted = trained(forms.convert(loop, form))
    for got, want in zip(converted.layers(), trained(loop).layers(), strict=True):
        torch.testing.assert_close(got, want)


def test_converted_weights_are_its_own(loop: Any) -> None:
    bmm = forms.convert(loop, forms.Bmm)
    bmm.weight.data.zero_()
    assert loop.linears[0].weight.any()


def test_training_with_decay_and_momentum_keeps_the_mask(loop: Any) -> None:
    masked = forms.convert(loop, forms.Masked)
    optimizer = torch.optim.AdamW(masked.parameters(), lr=0.1, weight_decay=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        (masked(torch.randn(BATCH, N, IN, dtype=torch.float64)) ** 2).sum().backward()
        optimizer.step()
    assert not masked.weight[masked.mask == 0].any()


def test_training_fills_the_zeros_of_big(loop: Any) -> None:
    big = trained(forms.convert(loop, forms.Big))
    assert (big.weight != 0).all()


@pytest.mark.parametrize(("form", "times"), [("Big", N), ("Masked", 2 * N), ("Bmm", 1)])
def test_each_form_holds_its_number_of_weights(
    form: str, times: int, loop: Any
) -> None:
    held = forms.convert(loop, getattr(forms, form)).state_dict()
    weights = sum(tensor.numel() for name, tensor in held.items() if name != "bias")
    assert weights == times * N * IN * OUT
