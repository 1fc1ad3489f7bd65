"""Communication while nothing is computed."""

from __future__ import annotations

from .conftest import Ask
from .work import ADD, ALL_REDUCE, Event, work


def reduce(ts: int, dur: int, elements: int | None = None, **of_group: str) -> Event:
    args = {} if elements is None else {"In msg nelems": elements, "Collective name": "allreduce"}
    args |= {f"Process Group {key.title()}": value for key, value in of_group.items()}
    found = {"ph": "X", "cat": "kernel", "name": ALL_REDUCE, "pid": 0, "tid": 20}
    return found | {"ts": ts, "dur": dur, "args": args}


def test_it_speaks(found: Ask) -> None:
    """40 us, of which 10 lie beside the kernel that ends at 1,100 us."""
    (finding,) = found("exposed-communication", [*work(("aten::add", ADD, 100)), reduce(1_090, 40)])
    assert finding.at_stake_ns == 30_000
    assert "(25 % of it is hidden): 1 all_reduce 30 us." in finding.text


def test_equal_transfers_tell_waiting_apart(found: Ask) -> None:
    """10, 15 and 40 us for the same: 5 and 30 us of waiting."""
    transfers = [reduce(0, 10, 99), reduce(100, 15, 99), reduce(200, 40, 99)]
    (finding,) = found("exposed-communication", transfers)
    assert "35 us of all communication is waiting" in finding.text


def test_several_process_groups_are_told_apart(found: Ask) -> None:
    """By their descriptions, else by their numbers."""
    transfers = [
        reduce(0, 30, 99, name="0", description="dp"),
        reduce(100, 10, 99, name="1", description="undefined"),
        reduce(200, 10, 50, name="1", description="undefined"),
    ]
    (finding,) = found("exposed-communication", transfers)
    assert "1 all_reduce (dp) 30 us, 2 all_reduce (1) 20 us." in finding.text


def test_a_single_process_group_is_not_named(found: Ask) -> None:
    """Nor beside transfers whose group is not known."""
    known, unknown = reduce(0, 30, 99, description="dp"), reduce(100, 10, 50)
    (finding,) = found("exposed-communication", [known, unknown])
    assert ": 2 all_reduce 40 us." in finding.text


def test_hidden_communication_is_silent(found: Ask) -> None:
    events = [*work(("aten::add", ADD, 100)), reduce(1_010, 40)]
    assert found("exposed-communication", events) == []
