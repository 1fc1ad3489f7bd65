"""The shape options of a workload."""

import pytest

from fusetui.capture.errors import CaptureError
from fusetui.capture.options import describe_shapes, parse_shapes, parse_sweep

DEFAULTS = {"batch": 64, "dim": 768}


@pytest.mark.parametrize("args", [["--batch", "32"], ["--batch=32"]])
def test_an_option_replaces_its_axis_only(args: list[str]) -> None:
    assert parse_shapes(args, DEFAULTS) == {"batch": 32, "dim": 768}


def test_the_last_of_two_options_counts() -> None:
    assert parse_shapes(["--dim", "8", "--dim", "9"], DEFAULTS)["dim"] == 9


def test_an_unknown_axis_names_the_known_ones() -> None:
    with pytest.raises(CaptureError, match="--bath: this workload has --batch, --dim"):
        parse_shapes(["--bath", "32"], DEFAULTS)


@pytest.mark.parametrize("size", ["0", "-1", "1.5", "many", "", "²"])
def test_a_size_is_a_positive_whole_number(size: str) -> None:
    with pytest.raises(CaptureError, match="--batch needs a positive whole number"):
        parse_shapes(["--batch", size], DEFAULTS)


def test_a_missing_size_is_told() -> None:
    with pytest.raises(CaptureError, match="--batch needs"):
        parse_shapes(["--batch"], DEFAULTS)


def test_a_bare_word_is_no_shape() -> None:
    with pytest.raises(CaptureError, match="Unexpected argument 'eager'"):
        parse_shapes(["eager"], DEFAULTS)


def test_shapes_are_described_in_order() -> None:
    assert describe_shapes(DEFAULTS) == "batch=64 dim=768"


LINEAR = {"rows": 1024, "in_features": 32, "out_features": 64}


@pytest.mark.parametrize(
    "args",
    [
        ["--in-features", "8", "--out-features=16"],
        ["--in_features", "8", "--out_features=16"],
        ["--in", "8", "--out=16"],  # as they were called before
    ],
)
def test_an_axis_is_spelled_as_an_option(args: list[str]) -> None:
    expected = {"rows": 1024, "in_features": 8, "out_features": 16}
    assert parse_shapes(args, LINEAR) == expected


def test_an_axis_that_is_called_out_is_meant_itself() -> None:
    assert parse_shapes(["--out", "3"], {"out": 1, "out_features": 2}) == {
        "out": 3,
        "out_features": 2,
    }


def test_an_old_name_is_unknown_where_the_axis_is_not() -> None:
    with pytest.raises(CaptureError, match="--in: this workload has --batch, --dim"):
        parse_shapes(["--in", "32"], DEFAULTS)


def test_a_sweep_takes_both_spellings() -> None:
    points = parse_sweep(["in=8,16 out-features=64/in-features"], list(LINEAR), {})
    assert points == (
        {"in_features": 8, "out_features": 8},
        {"in_features": 16, "out_features": 4},
    )
