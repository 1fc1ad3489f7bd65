"""The forward pass is done once more in the backward pass."""

from __future__ import annotations

from .conftest import Ask, Lack
from .work import ADD, Event, module, work


def checkpointed(*modules: Event) -> list[Event]:
    """Two kernels of 30 us inside one backward op, the first under an op of its own."""
    around = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "CheckpointFunctionBackward",
        "pid": 1,
        "tid": 1,
    }
    return [
        {**around, "ts": 0, "dur": 30},
        *modules,
        *work(*[("aten::add", ADD, 30)] * 2),
    ]


def test_recompute_reports_forward_kernels_in_the_backward_pass(found: Ask) -> None:
    (finding,) = found("recompute", checkpointed(module("Block_0", 0, 9)))
    assert finding.at_stake_ns == 30_000
    assert finding.text == (
        "1 kernel of the forward pass runs once more in the backward pass, for 30 us (50.0 % of "
        "the span), most of it in Block."
    )


def test_backward_work_alone_is_silent(found: Ask) -> None:
    """The module is around the backward op."""
    assert found("recompute", checkpointed(module("Trainer_0", 0, 50))) == []


def test_without_modules_it_cannot_tell(lacking: Lack) -> None:
    (lack,) = lacking("recompute", checkpointed())
    assert lack.record_with == "with_stack=True"
