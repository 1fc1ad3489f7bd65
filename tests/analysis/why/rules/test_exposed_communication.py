"""Communication while nothing is computed."""

from __future__ import annotations

from .conftest import Ask
from .work import ADD, ALL_REDUCE, Event, work


def reduce(ts: int, dur: int, elements: int | None = None, **of_group: str) -> Event:
    args = (
        {}
        if elements is None
        else {"In msg nelems": elements, "Collective name": "allreduce"}
    )
    args |= {f"Process Group {key.title()}": value for key, value in of_group.items()}
    found = {"ph": "X", "cat": "kernel", "name": ALL_REDUCE, "pid": 0, "tid": 20}
    return found | {"ts": ts, "dur": dur, "args": args}


def test_exposed_communication_reports_time_without_compute(found: Ask) -> None:
    """40 us, of which 10 lie beside the kernel that ends at 1,100 us."""
    (finding,) = found(
        "exposed-communication", [*work(("aten::add", ADD, 100)), reduce(1_090, 40)]
    )
    assert finding.at_stake_ns == 30_000
    assert (
        "; 25 % of all communication is hidden. Exposed: 30 us in 1 x all_reduce."
    ) in finding.text


def test_where_nothing_computes_there_is_nothing_to_overlap(found: Ask) -> None:
    (finding,) = found("exposed-communication", [reduce(0, 50)])
    assert finding.try_ == (
        "Compare the ranks, because this trace has no other work to overlap with communication."
    )


def exchange(ts: int, dur: int) -> Event:
    kernel = reduce(ts, dur, 99)
    kernel["args"] |= {"Collective name": "all_to_allv", "dtype": "Float"}
    kernel["name"] = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    return kernel


def test_buckets_are_no_advice_for_an_exchange(found: Ask) -> None:
    (finding,) = found(
        "exposed-communication",
        [*work(("aten::add", ADD, 100)), exchange(2_000, 40), reduce(3_000, 10)],
    )
    assert "exchanges take most of the time." in str(finding.try_)


def test_buckets_are_advice_for_a_reduction(found: Ask) -> None:
    (finding,) = found(
        "exposed-communication",
        [*work(("aten::add", ADD, 100)), exchange(2_000, 10), reduce(3_000, 40)],
    )
    assert "Overlap communication" in str(finding.try_)


def test_equal_transfers_tell_waiting_apart(found: Ask) -> None:
    """10, 15 and 40 us for the same: 5 and 30 us of waiting."""
    transfers = [reduce(0, 10, 99), reduce(100, 15, 99), reduce(200, 40, 99)]
    for one in transfers:
        one["args"] |= {"dtype": "Float"}
    (finding,) = found("exposed-communication", transfers)
    assert (
        "kB of float in 65 us). 35 us of all communication time is contention or waiting"
    ) in finding.text


def test_both_measures_of_waiting_are_named(found: Ask) -> None:
    """10, 12 and 15 us for the same wait 7 us; 900 us for twice the bytes, 880 us."""
    (finding,) = found(
        "exposed-communication",
        of_sizes((10, 1_000), (12, 1_000), (15, 1_000), (900, 2_000)),
    )
    assert (
        "judging by the fastest transfer of each size and the time that the bytes of "
        "a transfer explain. One all_reduce alone takes 900"
    ) in finding.text


def of_sizes(*transfers: tuple[int, int | None]) -> list[Event]:
    """(dur, elements of 4 bytes) of one all_reduce after the other, beside a kernel
    that computes before them."""
    found: list[Event] = []
    ts = 2_000
    for dur, elements in transfers:
        one = reduce(ts, dur, elements)
        if elements is not None:
            one["args"] |= {"dtype": "Float"}
        found.append(one)
        ts += dur + 10
    return [*work(("aten::add", ADD, 100)), *found]


def test_a_transfer_of_unknown_size_that_takes_most_may_wait(found: Ask) -> None:
    """900 of 930 us; the median of the others is 10 us."""
    events = of_sizes((10, None), (10, None), (10, None), (900, None))
    (finding,) = found("exposed-communication", events)
    assert finding.text.endswith(
        "One all_reduce alone takes 900 us, 90 times the median of the others "
        "(10 us): it waits for another rank, or moves more data (sizes were "
        "not recorded)."
    )
    assert finding.certainty == "likely"
    assert finding.try_ is not None
    assert finding.try_.startswith("Run fusetui ranks")
    assert "record_shapes=True" in finding.try_


def test_a_transfer_that_takes_longer_than_its_bytes_explain_waits(found: Ask) -> None:
    """Twice the bytes of what took 10 us take 20 us at most, and took 900."""
    events = of_sizes((10, 1_000), (12, 1_000), (15, 1_500), (900, 2_000))
    (finding,) = found("exposed-communication", events)
    assert (
        "judging by the time that the bytes of a transfer explain. One all_reduce "
        "alone takes 900"
    ) in finding.text
    assert finding.text.endswith(
        "all_reduce alone takes 900 us, but its bytes account for only 20 us, "
        "judging by the others of its kind: it waits for another rank."
    )
    assert finding.certainty == "certain"
    assert finding.try_ is not None
    assert "not shorten waits" in finding.try_


def test_a_smaller_transfer_takes_no_longer_than_a_larger_one(found: Ask) -> None:
    events = of_sizes((40, 9_000), (42, 8_000), (41, 8_500), (900, 1_000))
    (finding,) = found("exposed-communication", events)
    assert "its bytes account for only 40 us" in finding.text


def test_a_transfer_of_more_bytes_is_explained_by_them(found: Ask) -> None:
    """Ninety times as long for a hundred times the bytes."""
    events = of_sizes((10, 1_000), (11, 1_001), (12, 1_002), (900, 100_000))
    (finding,) = found("exposed-communication", events)
    assert "waits" not in finding.text
    assert "waiting" not in finding.text
    assert finding.try_ is not None
    assert "Overlap communication" in str(finding.try_)


def test_a_long_transfer_among_few_or_slower_ones_is_not_told_apart(found: Ask) -> None:
    """Two others tell nothing, nor does a median of a quarter."""
    for durations in ((10, 10, 900), (225, 225, 225, 900)):
        events = of_sizes(*((dur, None) for dur in durations))
        (finding,) = found("exposed-communication", events)
        assert "alone takes" not in finding.text
        assert finding.certainty == "certain"


def test_a_long_transfer_that_is_not_most_of_the_time_is_not_told_apart(
    found: Ask,
) -> None:
    """100 of 210 us."""
    events = of_sizes(*[(10, None)] * 11, (100, None))
    (finding,) = found("exposed-communication", events)
    assert "alone takes" not in finding.text


def test_where_most_is_waiting_overlap_is_no_advice(found: Ask) -> None:
    """10, 15 and 40 us for the same, beside work: 35 of 65 us of waiting; then 4 of
    34."""
    for durations, first in (
        ((10, 15, 40), "Run fusetui ranks"),
        ((10, 12, 12), "Overlap communication"),
    ):
        events = of_sizes(*((dur, 99) for dur in durations))
        (finding,) = found("exposed-communication", events)
        assert finding.try_ is not None
        assert finding.try_.startswith(first)


def test_several_process_groups_are_told_apart(found: Ask) -> None:
    """By their descriptions, else by their numbers."""
    transfers = [
        reduce(0, 30, 99, name="0", description="dp"),
        reduce(100, 10, 99, name="1", description="undefined"),
        reduce(200, 10, 50, name="1", description="undefined"),
    ]
    (finding,) = found("exposed-communication", transfers)
    assert "30 us in 1 x all_reduce (dp), 20 us in 2 x all_reduce (1)." in finding.text


def test_a_single_process_group_is_not_named(found: Ask) -> None:
    both = [reduce(0, 30, 99, description="dp"), reduce(100, 10, 50, description="dp")]
    (finding,) = found("exposed-communication", both)
    assert ": 40 us in 2 x all_reduce." in finding.text


def test_a_process_group_is_named_beside_transfers_whose_group_is_not_known(
    found: Ask,
) -> None:
    known, unknown = reduce(0, 30, 99, description="dp"), reduce(100, 10, 50)
    (finding,) = found("exposed-communication", [known, unknown])
    assert ": 30 us in 1 x all_reduce (dp), 10 us in 1 x all_reduce." in finding.text


def test_hidden_communication_is_silent(found: Ask) -> None:
    events = [*work(("aten::add", ADD, 100)), reduce(1_010, 40)]
    assert found("exposed-communication", events) == []


def test_bytes_and_bandwidth_are_bounded(found: Ask) -> None:
    """8 MB between 4 ranks in 1, 2 and 5 ms, by nccl-tests' 2 (n - 1) / n: 24 MB * 1.5
    in 8 ms, or in 3 times 1 ms."""
    sizes = {"dtype": "Float", "Group size": 4}
    transfers = [
        reduce(ts, dur, 2_000_000)
        for ts, dur in ((0, 1000), (2000, 2000), (5000, 5000))
    ]
    for one in transfers:
        one["args"] |= sizes
    (finding,) = found("exposed-communication", transfers)
    moved = "8 ms in 3 x all_reduce (24 MB of float in 8 ms, 4.5 GB/s to 12 GB/s of bus bandwidth)."
    assert moved in finding.text


def test_a_single_transfer_has_only_a_lower_bound(found: Ask) -> None:
    """1 MB to one of two ranks in 1 ms: it may have waited."""
    one = reduce(0, 1000, 250_000)
    one["args"] |= {"dtype": "Float", "Group size": 2}
    (finding,) = found("exposed-communication", [one])
    assert "(1 MB of float in 1 ms, at least 1 GB/s of bus bandwidth)" in finding.text
    assert "lower bandwidth" not in finding.text


def test_without_a_group_there_are_bytes_and_no_bandwidth(found: Ask) -> None:
    one = reduce(0, 1000, 250_000)
    one["args"] |= {"dtype": "Float"}
    (finding,) = found("exposed-communication", [one])
    assert "(1 MB of float in 1 ms)" in finding.text


def by_annotation() -> list[Event]:
    """An all_gather of 1 MB, whose group no event names."""
    kernel = reduce(100, 1000) | {
        "name": "ncclDevKernel_AllGather_RING_LL(ncclDevComm*)"
    }
    kernel["args"] = {"correlation": 1}
    cpu = {"ph": "X", "pid": 1, "tid": 1}
    mark = cpu | {
        "cat": "user_annotation",
        "name": "nccl:_all_gather_base",
        "ts": 0,
        "dur": 20,
    }
    mark["args"] = {"Input Dims": [[250_000]], "Input type": ["float"]}
    call = cpu | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 5, "dur": 5}
    return [mark, call | {"args": {"correlation": 1}}, kernel]


def test_group_assumed_to_be_all_ranks_is_reported_as_a_guess(found: Ask) -> None:
    job = {"distributedInfo": {"world_size": 8}}
    (finding,) = found("exposed-communication", by_annotation(), **job)
    assert (
        "(8 MB of float in 1 ms, at least 7 GB/s of bus bandwidth). Bytes"
        in finding.text
    )
    assert "Bytes and bandwidth assume groups of all 8 ranks," in finding.text


def test_two_ranks_have_one_group_only(found: Ask) -> None:
    job = {"distributedInfo": {"world_size": 2}}
    (finding,) = found("exposed-communication", by_annotation(), **job)
    assert finding.text.endswith(
        "(2 MB of float in 1 ms, at least 1 GB/s of bus bandwidth)."
    )


def test_collectives_are_named_by_what_issued_them(found: Ask) -> None:
    """NCCL's kernel of an all-to-all is called SendRecv."""
    kernel = reduce(100, 30)
    kernel["name"] = "ncclDevKernel_SendRecv(ncclDevComm*)"
    kernel["args"] = {"correlation": 1}
    cpu = {"ph": "X", "pid": 1, "tid": 1}
    mark = cpu | {
        "cat": "user_annotation",
        "name": "nccl:all_to_all",
        "ts": 0,
        "dur": 20,
    }
    call = cpu | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 5, "dur": 5}
    events = [mark, call | {"args": {"correlation": 1}}, kernel]
    (finding,) = found("exposed-communication", events)
    assert "30 us in 1 x all_to_all." in finding.text


def test_a_share_of_what_runs_is_enough(found: Ask) -> None:
    """10 of 110 us that are busy, in a span of 10 ms."""
    events = [
        *work(("aten::add", ADD, 90)),
        reduce(1_200, 10),
        *work(("aten::add", ADD, 10)),
    ]
    events[-1] |= {"ts": 10_990}
    (finding,) = found("exposed-communication", events)
    assert finding.at_stake_ns == 10_000
