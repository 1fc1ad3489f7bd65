"""How work is launched changed, not the work: no row says that it did. And changes told
once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.diff.planting import PLACES, Subject, is_exact, judge
from tests.analysis.diff.rewrites import REWRITES

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff, Row, RowKind
from fusetui.trace import Trace

Build = Callable[..., Trace]
Work = Callable[[Diff], list[Row]]

ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::{}>(int)"
LAYER = [
    (
        "aten::linear / aten::addmm",
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_stages_64x3_tn",
        192.0,
    ),
    ("aten::gelu", ELEMENTWISE.format("GeluFunctor<float>"), 64.0),
    ("aten::mul", ELEMENTWISE.format("MulFunctor<float>"), 32.0),
    ("aten::native_layer_norm", "void layer_norm_kernel<float>(int)", 48.0),
    ("aten::add", "void add_kernel<float>(int)", 16.0),
]
LAYERS = 18  # so many that 40 launches are less than half of a step
FACTORS = (1.0, 1.0625, 1.125, 1.0, 1.1875, 1.0625)  # so that all times are exact


@pytest.fixture(scope="module")
def subject(build: Build) -> Subject:
    found = Subject.read(Path(build(LAYER * LAYERS, FACTORS).report.path))
    assert found is not None
    return found


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("rewrite", REWRITES)
def test_only_what_changed_is_told(
    subject: Subject, rewrite: str, place: str, tmp_path: Path
) -> None:
    planted = REWRITES[rewrite](subject, place, 0)
    if planted is None:
        assert place != "in all steps"
        return
    answer = judge(subject, planted, tmp_path / "planted.json")
    assert answer.right, answer.said


def renamed(
    pieces: list[tuple[Any, ...]], suffix: str = "_v2"
) -> list[tuple[Any, ...]]:
    return [(f"{piece[0]}{suffix}", *piece[1:]) for piece in pieces]


def changed(found: Diff) -> list[Row]:
    return [
        row for row in found.rows if row.kind is not RowKind.SAME and not row.on_cpu
    ]


def test_a_change_is_found_among_renamed_ops(build: Build) -> None:
    found = diff(build(LAYER), build(renamed(LAYER[:-1])))
    (row,) = changed(found)
    assert (row.kind, row.op, row.change_ns) == (RowKind.REMOVED, "aten::add", -16_000)
    (note,) = [note for note in found.notes if "renamed" in note]
    assert "4 ops were renamed but launch the same 4 kernels" in note
    assert is_exact(found)


VIEWED = [("aten::view", None, 3.0), LAYER[0], ("aten::expand", None, 3.0), *LAYER[1:]]


def dispatch_of(found: Diff) -> list[tuple[RowKind, str]]:
    return [(row.kind, row.op) for row in found.rows if row.on_cpu]


def with_op(
    pieces: list[tuple[Any, ...]], name: str, other: str
) -> list[tuple[Any, ...]]:
    return [(other, *piece[1:]) if piece[0] == name else piece for piece in pieces]


def test_an_op_that_computes_nothing_is_renamed_by_its_places(build: Build) -> None:
    found = diff(
        build(VIEWED * 3), build(with_op(VIEWED, "aten::view", "aten::view_v2") * 3)
    )
    assert dispatch_of(found) == []
    (note,) = [note for note in found.notes if "renamed" in note]
    assert note == (
        "an op that computes nothing was renamed but runs in the same places: "
        "aten::view -> aten::view_v2"
    )


def test_an_op_that_its_kernels_tell_is_renamed_where_it_launches_nothing_too(
    build: Build,
) -> None:
    """At other places: no place tells it."""
    first = [*VIEWED, ("aten::add", None, 3.0)]
    last = [("aten::add_v2", None, 3.0), *with_op(VIEWED, "aten::add", "aten::add_v2")]
    found = diff(build(first), build(last))
    assert dispatch_of(found) == []
    (note,) = [note for note in found.notes if "renamed" in note]
    assert note.startswith("an op was renamed")


def test_an_op_at_other_places_is_not_renamed(build: Build) -> None:
    """One op is gone, another one is there as often, but after another kernel."""
    without = [piece for piece in VIEWED if piece[0] != "aten::view"]
    moved = [*without[:3], ("aten::view_v2", None, 3.0), *without[3:]]
    found = diff(build(VIEWED * 3), build(moved * 3))
    assert dispatch_of(found) == [
        (RowKind.REMOVED, "CPU: aten::view"),
        (RowKind.ADDED, "CPU: aten::view_v2"),
    ]
    assert not any("renamed" in note for note in found.notes)


def test_an_op_with_other_ops_inside_is_not_renamed(build: Build) -> None:
    inner = [("aten::view_v2 / aten::as_strided", None, 3.0), *VIEWED[1:]]
    found = diff(build(VIEWED * 3), build(inner * 3))
    assert (RowKind.REMOVED, "CPU: aten::view") in dispatch_of(found)
    assert not any("renamed" in note for note in found.notes)


def test_an_op_that_occurs_more_often_is_not_renamed(build: Build) -> None:
    twice = with_op(VIEWED, "aten::view", "aten::view_v2")
    found = diff(build(VIEWED * 3), build([*twice * 3, twice[0]]))
    assert (RowKind.REMOVED, "CPU: aten::view") in dispatch_of(found)
    assert not any("renamed" in note for note in found.notes)


def on_one_stream(pieces: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(*piece[:2], 2.0) for piece in pieces]


def on_two_streams(pieces: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """In turns, each kernel so short that it ends before the next one begins."""
    return [(*piece[:2], 2.0, 20 if n % 2 else 7) for n, piece in enumerate(pieces)]


def test_a_note_names_the_streams_that_are_compared_as_one(build: Build) -> None:
    found = diff(build(on_one_stream(LAYER * 3)), build(on_two_streams(LAYER * 3)))
    assert changed(found) == []
    (note,) = [note for note in found.notes if "streams" in note]
    said = "streams 7 and 20 are compared as one"
    assert note == f"{found.b}: {said}"


def test_streams_that_stay_apart_have_no_note(build: Build) -> None:
    both = build(on_two_streams(LAYER * 3))
    assert not any("streams" in note for note in diff(both, both).notes)


def test_an_op_that_launches_another_kernel_is_not_renamed(build: Build) -> None:
    other = [*LAYER[:-1], ("aten::add_v2", "void other_kernel<float>(int)", 16.0)]
    found = diff(build(LAYER), build(other))
    assert not any("renamed" in note for note in found.notes)


def test_the_same_kernel_under_ops_that_both_have_is_no_renaming(build: Build) -> None:
    """One op is gone, another one is there once more."""
    one, other = (
        ("my::one", "shared_kernel", 20.0),
        ("my::other", "shared_kernel", 20.0),
    )
    a, b = (
        build([one, *LAYER, one, *LAYER, other]),
        build([one, *LAYER, *LAYER, other, other]),
    )
    assert {row.kind for row in changed(diff(a, b))} == {RowKind.ADDED, RowKind.REMOVED}


def test_an_op_whose_kernel_an_op_inside_it_launches_is_called_as_often(
    build: Build,
) -> None:
    """As the ops of an optimizer whose kernels another op launches for them."""
    kernels = [
        (f"void multi_tensor_apply_kernel<{n}>(int)", 20.0 + n) for n in range(3)
    ]
    a = build([*LAYER, *(("aten::_foreach_add_", *kernel) for kernel in kernels)])
    inside = "aten::_foreach_add_ / mylib::multi_tensor"
    b = build([*LAYER, *((inside, *kernel) for kernel in kernels)])
    assert not changed(diff(a, b))
    assert not dispatch_of(diff(a, b))
    assert not dispatch_of(diff(b, a))


def renaming(found: Diff) -> list[str]:
    return [note for note in found.notes if "renamed" in note]


def test_an_op_of_another_namespace_is_renamed(build: Build) -> None:
    gemm = LAYER[0][1:]
    a, b = (
        build([("aten::mm", *gemm), *LAYER[1:]]),
        build([("mylib::mm", *gemm), *LAYER[1:]]),
    )
    told = "an op was renamed but launches the same 1 kernel: "
    assert renaming(diff(a, b)) == [f"{told}aten::mm -> mylib::mm"]
    assert renaming(diff(b, a)) == [f"{told}mylib::mm -> aten::mm"]
    assert not changed(diff(a, b))


@pytest.mark.parametrize("name", ["mylib::mm", "mylib::product"])
def test_an_op_that_is_renamed_at_one_of_its_places_is_noted(
    build: Build, name: str
) -> None:
    mm, other = ("aten::mm", *LAYER[0][1:]), (name, *LAYER[0][1:])
    a, b = build([mm, *LAYER[1:], mm]), build([mm, *LAYER[1:], other])
    told = "an op was renamed but launches the same 1 kernel: "
    assert renaming(diff(a, b)) == [f"{told}aten::mm -> {name}"]
    assert renaming(diff(b, a)) == [f"{told}{name} -> aten::mm"]


@pytest.mark.parametrize("name", ["mylib::mm", "mylib::product"])
def test_another_op_that_launches_the_kernel_elsewhere_is_no_renaming(
    build: Build, name: str
) -> None:
    a = build([("aten::mm", *LAYER[0][1:]), *LAYER[1:]])
    b = build([*LAYER[1:], (name, *LAYER[0][1:])])
    assert not renaming(diff(a, b))


def test_several_ops_that_became_one_are_not_renamed(build: Build) -> None:
    """As where a compiled function launches what ops did."""
    a = build(LAYER)
    b = build([("my::function", *piece[1:]) for piece in LAYER])
    assert not renaming(diff(a, b))


def test_an_op_that_works_in_place_is_not_renamed(build: Build) -> None:
    add = LAYER[-1]
    found = diff(build(LAYER), build([*LAYER[:-1], ("aten::add_", *add[1:])]))
    assert not renaming(found)


MULTI = "void at::native::multi_tensor_apply_kernel<TensorListMetadata<1>, {}>(int)"
OPTIMIZER = [
    (f"aten::_foreach_{op}", MULTI.format(functor), us)
    for op, functor, us in (
        ("lerp_", "TernaryOpScalarFunctor<float, LerpFunctor>", 176.0),
        ("mul_", "BinaryOpScalarFunctor<float, std::multiplies<float>>", 128.0),
        ("sqrt", "UnaryOpFunctor<float, at::native::Sqrt<float>>", 134.0),
        ("div_", "BinaryOpScalarListFunctor<float, std::divides<float>>", 131.0),
    )
]


def with_ops_of(
    pieces: list[tuple[Any, ...]], order: tuple[int, ...]
) -> list[tuple[Any, ...]]:
    """The kernels as they are, under each other's ops."""
    ops = [pieces[place][0] for place in order]
    return [(op, *piece[1:]) for op, piece in zip(ops, pieces, strict=True)]


@pytest.mark.parametrize(
    ("order", "ops"),
    [((1, 2, 3, 0), 4), ((3, 2, 1, 0), 4), ((0, 2, 1, 3), 2), ((2, 0, 1, 3), 3)],
)
def test_ops_that_swapped_their_names_are_compared_by_their_kernels(
    build: Build, order: tuple[int, ...], ops: int
) -> None:
    a = build([*LAYER, *OPTIMIZER])
    b = build([*LAYER, *with_ops_of(OPTIMIZER, order)])
    for found in (diff(a, b), diff(b, a)):
        assert not changed(found)
        assert not dispatch_of(found)
        (note,) = renaming(found)
        assert note.startswith(
            f"{ops} ops were renamed but launch the same {ops} kernels"
        )


def test_ops_that_swapped_their_products_did_not_swap_their_names(build: Build) -> None:
    """Which kernel multiplies is a matter of shapes and devices."""
    gemm = "ampere_bf16_s16816gemm_bf16_{}_ldg8_f2f_stages_64x3_tn"
    products = [
        ("aten::mm", gemm.format("128x128"), 100.0),
        ("aten::bmm", gemm.format("64x64"), 30.0),
    ]
    found = diff(
        build([*products, *LAYER]), build([*with_ops_of(products, (1, 0)), *LAYER])
    )
    assert not renaming(found)
    assert changed(found)


def test_two_ops_of_another_program_did_not_swap_their_names(build: Build) -> None:
    """Most of what each side does has nothing to do with the other side."""
    own = [
        (f"aten::{op}", ELEMENTWISE.format(op), 20.0) for op in ("sin", "cos", "tan")
    ]
    others = [
        (f"aten::{op}", ELEMENTWISE.format(f"{op}h"), 20.0)
        for op in ("sin", "cos", "tan")
    ]
    pair = OPTIMIZER[:2]
    a, b = build([*own, *pair]), build([*others, *with_ops_of(pair, (1, 0))])
    assert not renaming(diff(a, b))


def test_an_op_that_has_its_kernel_elsewhere_did_not_swap_its_name(
    build: Build,
) -> None:
    first, second = OPTIMIZER[:2]
    a = build([*LAYER, first, second, second])
    b = build([*LAYER, *with_ops_of([first, second], (1, 0)), second])
    assert not renaming(diff(a, b))


def test_a_kernel_on_another_stream_has_moved(build: Build) -> None:
    add = LAYER[-1]
    rest = [*LAYER[:-1], *renamed(LAYER[:-1], "x")]
    a = build([*rest, add, *rest])
    b = build([*rest, (*add, 20), *rest])
    (row,) = changed(diff(a, b))
    assert row.kind is RowKind.MOVED


def test_streams_with_work_of_their_own_stay_apart(build: Build) -> None:
    copies = [("aten::copy_", f"copy_{n}", 5.0, 20) for n in range(6)]
    pieces = [piece for pair in zip(LAYER, copies, strict=False) for piece in pair]
    found = diff(build(pieces), build([*pieces, ("aten::mm", "copy_0", 5.0)]))
    (row,) = changed(found)
    assert (row.kind, row.op) == (RowKind.ADDED, "aten::mm")


def under(op: str, *us: float) -> tuple[str, list[tuple[Any, ...]]]:
    return op, [("", "part_kernel", time) for time in us]


def test_parts_that_do_not_add_up_are_more_work(build: Build) -> None:
    a, b = (
        build([*LAYER, under("my::op", 40.0)]),
        build([*LAYER, under("my::op", 40.0, 39.0)]),
    )
    (row,) = changed(diff(a, b))
    assert (row.kind, row.change_ns) == (RowKind.ADDED, 39_000)


def test_two_launches_of_one_kernel_that_become_one(build: Build) -> None:
    a, b = (
        build([*LAYER, under("my::op", 25.0, 15.0)]),
        build([*LAYER, under("my::op", 40.0)]),
    )
    (row,) = changed(diff(a, b))
    assert (row.kind, row.a_count, row.b_count, row.change_ns) == (
        RowKind.FUSED,
        2,
        1,
        0,
    )


def test_a_kernel_replaced_in_all_steps_is_told_once_if_one_step_runs_it_twice(
    build: Build,
) -> None:
    def step(tile: str, times: int) -> list[tuple[Any, ...]]:
        return [*LAYER, *[("aten::mm", f"ampere_sgemm_{tile}_nn", 80.0)] * times]

    a = build(step("128x64", 1), FACTORS, odd={3: step("128x64", 2)})
    b = build(step("128x128", 1), FACTORS, odd={3: step("128x128", 2)})
    (row,) = changed(diff(a, b))
    assert (row.kind, row.counts) == (RowKind.REPLACED, True)


def test_kernel_removed_from_all_steps_is_one_row(build: Build) -> None:
    extra = ("my::extra", "extra_kernel", 30.0)
    a = build([*LAYER, extra], FACTORS, odd={3: [*LAYER, extra, extra]})
    (row,) = changed(diff(a, build(LAYER, FACTORS)))
    assert (row.kind, row.counts) == (RowKind.REMOVED, True)


def test_more_in_one_step_than_in_all_is_still_told(build: Build) -> None:
    def step(us: float) -> list[tuple[Any, ...]]:
        return [*LAYER, ("my::op", "my_kernel", us)]

    a = build(step(100.0), FACTORS)
    b = build(step(130.0), FACTORS, odd={3: step(400.0)})
    once = [row for row in changed(diff(a, b)) if not row.counts]
    assert [(row.kind, row.why) for row in once] == [
        (RowKind.SLOWER, "only in step 3: 300.0 % more time")
    ]


def test_a_kernel_slow_in_one_step_of_both_sides_is_told_of_all_steps_alone(
    build: Build,
) -> None:
    def made(us: float) -> Trace:
        odd = {3: [*LAYER, ("my::op", "my_kernel", 5 * us)]}
        return build([*LAYER, ("my::op", "my_kernel", us)], FACTORS, odd=odd)

    (row,) = changed(diff(made(100.0), made(130.0)))
    assert (row.kind, row.counts) == (RowKind.SLOWER, True)
