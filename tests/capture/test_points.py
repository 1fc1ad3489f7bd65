"""The points of a sweep."""

import pytest

from fusetui.capture.errors import CaptureError
from fusetui.capture.options import describe_point, parse_sizes, parse_sweep

AXES = ["batch", "n"]
PRESETS = {"paper-n": "n=2,4,...,16"}


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("64", (64,)),
        ("64,128,...,1024", (64, 128, 256, 512, 1024)),
        ("2,4,...,10", (2, 4, 6, 8, 10)),
        ("3,9,...,81", (3, 9, 27, 81)),
        ("5,10,20,...,80", (5, 10, 20, 40, 80)),
        ("7,7,3", (7, 3)),
    ],
)
def test_dots_go_on_by_factor_or_by_difference(
    text: str, sizes: tuple[int, ...]
) -> None:
    assert parse_sizes("batch", text) == sizes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("64,...,128", "write two sizes before"),
        ("64,128,...", "one after it"),
        ("64,128,...,200", "never reaches 200"),
        ("128,64,...,2", "never reaches 2"),
        ("0", "positive whole numbers, not '0'"),
        ("", "not ''"),
    ],
)
def test_sizes_that_are_none_are_told(text: str, message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        parse_sizes("batch", text)


@pytest.mark.parametrize("texts", [["batch=1,2 n=3,4"], ["batch=1,2", "n=3,4"]])
def test_several_axes_give_every_combination(texts: list[str]) -> None:
    points = parse_sweep(texts, AXES, {})
    assert [describe_point(point) for point in points] == [
        "batch=1,n=3",
        "batch=1,n=4",
        "batch=2,n=3",
        "batch=2,n=4",
    ]


def test_a_total_is_divided_by_another_axis() -> None:
    points = parse_sweep(["n=4,8 batch=24/n"], AXES, {})
    assert points == ({"n": 4, "batch": 6}, {"n": 8, "batch": 3})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n=5 batch=24/n", "24 is not a multiple of n=5"),
        ("batch=24/n", "needs n in the sweep as well"),
        ("n=4 batch=x/n", "positive whole numbers, not 'x'"),
        ("n=4 batch=24/n batch=2", "names batch twice"),
    ],
)
def test_a_total_that_cannot_be_divided_is_told(text: str, message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        parse_sweep([text], AXES, {})


def test_a_preset_is_a_sweep_with_a_name() -> None:
    points = parse_sweep(["batch=1", "paper-n"], AXES, PRESETS)
    assert [point["n"] for point in points] == [2, 4, 8, 16]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["paper-x"], "neither axis=sizes nor a preset: its presets are paper-n"),
        (["dim=3"], "unknown axis 'dim': there are batch, n"),
        (["n=1", "n=2"], "names n twice"),
        (["batch=1,2,...,100 n=1,2,...,100"], "between 1 and 1000 points, not 10000"),
    ],
)
def test_a_wrong_sweep_is_told(texts: list[str], message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        parse_sweep(texts, AXES, PRESETS)


def test_every_preset_of_the_workloads_is_a_sweep() -> None:
    kernels = pytest.importorskip("fusetui.kernels")
    pytest.importorskip("torch", reason="the workloads are torch modules")
    for workload in map(kernels.get, kernels.names()):
        for preset in workload.sweeps:
            assert (
                len(parse_sweep([preset], list(workload.gpu_shapes), workload.sweeps))
                >= 4
            )


def test_the_presets_are_the_sizes_of_the_source() -> None:
    """Totals of 256, 1024 and 8096 over 32 layers, and 8192, which is ours; 1024 over n
    layers."""
    kernels = pytest.importorskip("fusetui.kernels")
    pytest.importorskip("torch", reason="the workloads are torch modules")
    workload = kernels.get("partitioned-linear")
    axes = list(workload.gpu_shapes)
    found = {
        name: parse_sweep([name], axes, workload.sweeps) for name in workload.sweeps
    }
    assert [point["batch"] for point in found["paper-batch"]] == [
        64,
        128,
        256,
        512,
        1024,
        2048,
    ]
    assert [32 * point["in_features"] for point in found["paper-in"]] == [
        256,
        1024,
        8096,
        8192,
    ]
    assert [32 * point["out_features"] for point in found["paper-out"]] == [
        256,
        1024,
        8096,
        8192,
    ]
    assert [point["n"] for point in found["paper-n"]] == [4, 8, 16, 32]
    assert {point["n"] * point["in_features"] for point in found["paper-n"]} == {1024}
    assert {point["n"] * point["out_features"] for point in found["paper-n"]} == {1024}
