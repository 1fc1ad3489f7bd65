"""Many collectives that move little."""

from __future__ import annotations

import pytest

from .conftest import Ask
from .work import ALL_REDUCE, Event


def reduces(number: int, dur: int, elements: int) -> list[Event]:
    """One after the other, each 1 us after the one before."""
    args = {
        "Collective name": "allreduce",
        "In msg nelems": elements,
        "dtype": "BFloat16",
    }
    args |= {"Group size": 8, "Process Group Description": "tp"}
    plain = {
        "ph": "X",
        "cat": "kernel",
        "name": ALL_REDUCE,
        "pid": 0,
        "tid": 20,
        "args": args,
    }
    return [plain | {"ts": n * (dur + 1), "dur": dur} for n in range(number)]


def test_small_collectives_reports_two_thousand_small_ones(found: Ask) -> None:
    """2,020 of 11 us: 22.22 ms of a span of 24.24 ms less 1 us."""
    (finding,) = found("small-collectives", reduces(2_020, 11, 8_192))
    assert finding.at_stake_ns == 2_020 * 11_000
    assert finding.part_of == "exposed-communication"
    assert (
        "2,020 x all_reduce of bfloat16, 11 us each (median) and 16.38 kB each"
        in finding.text
    )


def test_without_sizes_it_is_likely(found: Ask) -> None:
    events = reduces(100, 11, 8_192)
    for one in events:
        one["args"] = {}
    (finding,) = found("small-collectives", events)
    assert finding.certainty == "likely"
    assert (
        "100 x all_reduce, 11 us each (median). They spend their time on"
        in finding.text
    )


@pytest.mark.parametrize(
    ("number", "dur", "elements"),
    [(49, 11, 8_192), (100, 60, 8_192), (100, 40, 1 << 20)],
    ids=["few", "long", "large"],
)
def test_small_collectives_is_silent_for_few_or_large_ones(
    found: Ask, number: int, dur: int, elements: int
) -> None:
    assert found("small-collectives", reduces(number, dur, elements)) == []
