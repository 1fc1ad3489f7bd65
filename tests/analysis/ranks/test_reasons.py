"""Why a rank is last: what it did meanwhile, or that it was not recorded; what it would
save."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.analysis.ranks.invented_job import Work, annotation, simulated, write
from tests.analysis.ranks.made import US, answer_of, rank, texts_of, verdict_of

from fusetui.analysis.questions.process_groups import ProcessGroup
from fusetui.analysis.ranks.executors import summarize
from fusetui.analysis.ranks.model import (
    MAX_NAMES_OF_A_KIND,
    JobAnswer,
    JointStepChange,
    KernelRuns,
    RankSummary,
    Straggler,
)

PAIRS = ((0, 1), (2, 3), (1, 2))


def only(ranks: Sequence[RankSummary]) -> tuple[Straggler, str]:
    """The only straggler, and what is said of it."""
    answer = answer_of(ranks)
    ((straggler, text),) = zip(answer.stragglers, texts_of(answer), strict=True)
    return straggler, text


def summaries_of_phases(
    phases_of_ranks: Sequence[Sequence[int]], folder: Path
) -> list[RankSummary]:
    """A job of two collectives; between them the thread of each rank is in annotated
    phases of so many ns."""
    meet = Work(2 * US, 10 * US, group=tuple(range(len(phases_of_ranks))))
    programs = [[[meet, Work(sum(phases), US), meet]] for phases in phases_of_ranks]
    run = simulated(programs, begin=[0 for _ in programs])
    for events, phases in zip(run.events, phases_of_ranks, strict=True):
        ops = [event for event in events if event["cat"] == "cpu_op"]
        begin = round(ops[1]["ts"] * US)
        for number, ns in enumerate(phases):
            events.append(annotation(f"phase {number}", begin, ns))
            begin += ns
    files = sorted(map(str, write(run, folder).iterdir()))
    found = summarize(files, cached=False)
    return [one for one in found if isinstance(one, RankSummary)]


def late_by_100(late: dict[str, Any], others: dict[str, Any]) -> list[RankSummary]:
    """Three ranks that meet at 100 us; then rank 2 starts at 300, the others at 200."""

    def one(number: int, start: float, more: dict[str, Any]) -> RankSummary:
        times = [(50, 100), (start, 320)]
        return rank(number, times, size=3, host="h", **more)

    return [one(0, 200, others), one(1, 200, others), one(2, 300, late)]


def test_a_class_of_its_account_explains_it() -> None:
    found, text = only(
        late_by_100(
            {"before": [{}, {"compute": 190, "host_op": 10}]},
            {"before": [{}, {"compute": 90, "host_op": 10}]},
        )
    )
    assert (found.rank, found.last_count, found.cause) == (2, 1, "inside")
    assert (found.reason.late_ns, found.reason.inside_ns) == (100 * US, 100 * US)
    assert [(e.name, e.ns) for e in found.reason.excess] == [("compute", 100 * US)]
    assert "kernels ran for 100 us longer" in text


def test_late_rank_with_the_same_kernels_slower_says_so() -> None:
    def kernels(us: int) -> dict[str, Any]:
        before = [{}, {"compute": us}]
        return {"before": before, "kernels": (KernelRuns("gemm", 8, us * US, False),)}

    assert "takes 50 % longer:" in only(late_by_100(kernels(300), kernels(200)))[1]


def test_a_place_of_the_program_explains_it() -> None:
    """Without a GPU there is no account; the annotation tells."""
    found, text = only(
        late_by_100(
            {
                "places": [
                    (1, "annotation", "load_batch", 110),
                    (1, "op", "aten::mm", 30),
                ]
            },
            {
                "places": [
                    (1, "annotation", "load_batch", 10),
                    (1, "op", "aten::mm", 30),
                ]
            },
        )
    )
    assert [(e.name, e.ns) for e in found.reason.excess] == [("load_batch", 100 * US)]
    assert "It spends 100 us more than the median rank in load_batch." in text


def load_batch(us: float) -> list[tuple[int, str, str, float]]:
    """Before the second collective."""
    return [(1, "annotation", "load_batch", us)]


PHASE = [(1, "annotation", "phase", 60)]
LONGEST_LEFT_OUT = [(1, "annotation", 50)]


def test_a_name_that_others_left_out_took_them_at_most_the_longest_left_out() -> None:
    """Others may have spent up to 50 us in load_batch: it explains 70 us for
    certain."""
    late = {"places": [*PHASE, *load_batch(120)]}
    others = {"places": PHASE, "left_out": LONGEST_LEFT_OUT}
    found, text = only(late_by_100(late, others))
    assert [(e.name, e.ns) for e in found.reason.excess] == [("load_batch", 70 * US)]
    assert "It spends 70 us more than the median rank in load_batch." in text


def test_ops_left_out_of_a_file_do_not_bound_the_python_functions_named() -> None:
    late = {"places": [*PHASE, *load_batch(100)]}
    others = {"places": PHASE, "left_out": [(1, "op", 50)]}
    found, _ = only(late_by_100(late, others))
    assert [(e.name, e.ns) for e in found.reason.excess] == [("load_batch", 100 * US)]


def test_a_name_that_others_did_not_have_took_them_nothing() -> None:
    late = {"places": [*PHASE, *load_batch(100)]}
    found, _ = only(late_by_100(late, {"places": PHASE}))
    assert [(e.name, e.ns) for e in found.reason.excess] == [("load_batch", 100 * US)]


def test_a_name_that_only_the_others_have_counts() -> None:
    """Rank 2 is 50 us late for each of two collectives. It loads 90 us longer before
    the first of them, and the others load 60 us before the second, where it does not:
    30 us in all are no reason for a delay of 100."""

    def one(number: int, late: float, first: float, second: float) -> RankSummary:
        times = [(50, 100), (200 + late, 320), (400 + late, 520)]
        places = [
            (1, "annotation", "load_batch", first),
            (2, "annotation", "load_batch", second),
            (2, "annotation", "phase", 10),
        ]
        known = [place for place in places if place[-1] > 0]
        return rank(number, times, size=3, host="h", places=known)

    found, text = only([one(0, 0, 10, 60), one(1, 0, 10, 60), one(2, 50, 100, 0)])
    assert found.reason.inside_ns == 100 * US
    assert [(e.name, e.ns) for e in found.reason.excess] == []
    assert "not explain" in text


PHASES, PHASE_US = 40, 22


@pytest.mark.parametrize("extra_us", [120, 500])
def test_of_forty_phases_the_exact_extra_time_is_reported(
    extra_us: int, tmp_path: Path
) -> None:
    """Before the second collective each of 40 phases has an annotation of its own. Rank
    2 takes longer in one of them."""
    in_time = [PHASE_US * US for _ in range(PHASES)]
    late = in_time.copy()
    late[33] += extra_us * US
    found, text = only(summaries_of_phases([in_time, in_time, late], tmp_path))
    by_place = {(one.kind, one.name): one.ns for one in found.reason.excess}
    assert by_place["annotation", "phase 33"] == extra_us * US
    assert f"It spends {extra_us} us more than the median rank in phase 33." in text


def test_of_more_names_than_are_kept_the_longest_left_out_is(tmp_path: Path) -> None:
    """Phase n takes 20 + n us: the first three are left out."""
    phases = [(20 + phase) * US for phase in range(MAX_NAMES_OF_A_KIND + 3)]
    (summary,) = summaries_of_phases([phases], tmp_path)
    before = summary.regions.unpack()[1]
    kept = [name for kind, name in before.ns if kind == "annotation"]
    assert len(kept) == MAX_NAMES_OF_A_KIND
    assert "phase 2" not in kept
    assert before.left_out_ns == {"annotation": 22 * US}


def test_reason_for_less_than_half_of_a_delay_is_not_reported() -> None:
    found, text = only(
        late_by_100(
            {"before": [{}, {"compute": 130}]}, {"before": [{}, {"compute": 90}]}
        )
    )
    assert found.cause == "untold"
    assert "not explain" in text


def test_a_reason_explains_no_more_than_the_delay_of_its_own_collective() -> None:
    """Rank 2 is 100 us late for the second collective, as it spends 100 us more in an
    op. For the third it is 5 us late; its kernels ran 105 us longer there, but beside
    the transfer."""

    def one(number: int, late: float, before: list[dict[str, float]]) -> RankSummary:
        times = [(50, 100), (200 + late, 320), (400 + late / 20, 450)]
        return rank(number, times, size=3, host="h", before=before)

    in_time: list[dict[str, float]] = [{}, {"host_op": 10}, {"compute": 10}]
    late: list[dict[str, float]] = [{}, {"host_op": 110}, {"compute": 115}]
    found, text = only([one(0, 0, in_time), one(1, 0, in_time), one(2, 100, late)])
    assert found.reason.inside_ns == 105 * US
    assert [(e.name, e.ns) for e in found.reason.excess] == [
        ("host_op", 100 * US),
        ("compute", 5.5 * US),
    ]
    assert "kernels ran" not in text


def in_turn(one: RankSummary, *groups: ProcessGroup) -> RankSummary:
    """Each collective of the rank in a group of its own."""
    numbers = np.arange(len(groups))
    return replace(
        one, groups=groups, collectives=replace(one.collectives, group=numbers)
    )


def test_a_delay_that_reaches_the_next_group() -> None:
    """Rank 2 meets rank 1 late because it waited for rank 3 before: that one is
    charged, once, also with the wait of rank 1, which it never meets."""
    first, second, both = (
        ProcessGroup(name, pair, 2) for name, pair in zip("abc", PAIRS, strict=True)
    )
    ranks = [
        rank(0, [(100, 120)], size=4, group=first, host="h"),
        in_turn(rank(1, [(100, 120), (130, 350)], size=4, host="h"), first, both),
        in_turn(rank(2, [(100, 320), (330, 350)], size=4, host="h"), second, both),
        rank(3, [(300, 320)], size=4, group=second, host="h"),
    ]
    found, text = only(ranks)
    assert (found.rank, found.caused_ns, found.waiters) == (3, 200 * US, 2)
    assert text.startswith(
        "Rank 3 arrives last in 1 of 1 collective; 2 other ranks wait 200 us"
    )


def test_a_rank_that_was_late_where_its_window_begins() -> None:
    """Rank 1 begins 90 us after rank 0, and starts its first collective 100 us
    later."""
    found, text = only(
        [rank(0, [(100, 250)], host="h"), rank(1, [(200, 250)], begin=90, host="h")]
    )
    assert (found.cause, found.reason.outside_ns) == ("outside", 100 * US)
    assert (found.reason.begins_after_ns, found.reason.begins_after_rank) == (
        90 * US,
        0,
    )
    assert "the cause predates the recording." in text


def test_a_step_without_the_late_ranks_delay_would_take_90_of_150_us() -> None:
    """Rank 2's stretch before the collective is 100, the others' 40; all then transfer
    20, and end 30 later: 150 recorded, 90 without."""
    steps = [(0, 150)]
    times = [[(40, 120)], [(40, 120)], [(100, 120)]]
    ranks = [rank(n, t, size=3, steps=steps, host="h") for n, t in enumerate(times)]
    found = only(ranks)[0].what_if
    assert found is not None
    assert (found.rank, found.step_ns, found.replayed_ns, found.would_be_ns) == (
        *(2, 150 * US, 150 * US),
        90 * US,
    )


def two_late(first: float, second: float) -> JobAnswer:
    """Five ranks, of which 2 and 4 start the collective of a step so many us late: at
    40 us without that. All then transfer 20 us, and end 30 later."""
    starts = [40, 40, 40 + first, 40, 40 + second]
    end = max(starts) + 20
    steps = [(0, end + 30)]
    return answer_of(
        rank(n, [(start, end)], size=5, steps=steps, host="h")
        for n, start in enumerate(starts)
    )


def test_two_ranks_that_are_late_at_once_must_both_be_fixed() -> None:
    """A step takes 150 us, and 90 without both. Without one of them it is as long as
    before."""
    answer = two_late(60, 60)
    assert [one.what_if.would_be_ns for one in answer.stragglers if one.what_if] == [
        150 * US
    ] * 2
    assert answer.verdict.if_all == JointStepChange(
        ranks=(2, 4), step_ns=150 * US, would_be_ns=90 * US
    )
    assert verdict_of(answer) == (
        (
            "Ranks 2 and 4 must both be fixed: a step (wall) would then take 90 "
            "us instead of 150 us (40 % less)."
        ),
    )
    of_rank = {
        one.rank: text
        for one, text in zip(answer.stragglers, texts_of(answer), strict=True)
    }
    alone = (
        "A step (wall) would take as long as before if it alone were as fast as the "
        "others, because"
    )
    assert of_rank[2].endswith(f"{alone} rank 4 is late too.")
    assert of_rank[4].endswith(f"{alone} rank 2 is late too.")


def test_time_saved_by_one_of_two_late_ranks_is_told_as_if_it_alone_were_fast() -> None:
    """Rank 2 is 20 us late and rank 4 60: without rank 4 a step takes 110 us."""
    answer = two_late(20, 60)
    text = next(
        t
        for o, t in zip(answer.stragglers, texts_of(answer), strict=True)
        if o.rank == 4
    )
    assert (
        "its recorded work does not explain the delay. A step (wall) would "
        "take 110 us instead of 150"
    ) in text
    assert verdict_of(answer) == (
        (
            "A step (wall) would take 90 us instead of 150 us (40 % less) if "
            "ranks 2 and 4 were both as fast as the others."
        ),
    )


def test_fixing_all_is_no_advice_where_one_rank_is_late() -> None:
    answer = two_late(0, 60)
    assert answer.verdict.if_all is None
    assert (
        "does not explain the delay. A step (wall) would take 90 us"
        in texts_of(answer)[0]
    )


def test_a_rank_that_is_never_the_last_one_is_late_all_the_same() -> None:
    """Rank 2 has half of the first 50 us that others wait; rank 4 comes last."""
    answer = two_late(50, 60)
    of_rank = {
        one.rank: text
        for one, text in zip(answer.stragglers, texts_of(answer), strict=True)
    }
    assert of_rank[2].startswith(
        "Rank 2 arrives late, but never last; 3 other ranks wait 25 us for it."
    )
    assert of_rank[4].startswith("Rank 4 arrives last in 1 of 1 collective;")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"size": 4}, "not all ranks of the job are given"),
        ({"damage": ("cut",)}, "not every collective could be matched"),
        (
            {"steps": [(0, 110)]},
            "collectives overlap other work or step boundaries",
        ),
        ({"steps": []}, "the ranks do not have the same steps"),
    ],
)
def test_no_what_if_unless_all_is_known(change: dict[str, Any], why: str) -> None:
    given = {"size": 2, "steps": [(0, 150)], "host": "h", **change}
    ranks = [rank(n, [(40 + 60 * n, 120)], **given) for n in range(2)]
    answer = answer_of(ranks)
    assert answer.no_what_if == why
    assert all(one.what_if is None for one in answer.stragglers)
