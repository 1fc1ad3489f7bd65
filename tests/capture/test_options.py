"""Options are declared once: the command line, the documentation and the checks
follow."""

from typing import Any

import pytest
from tests.places import ROOT

from fusetui.capture.errors import CaptureError
from fusetui.capture.options import (
    Options,
    check_options,
    declared_options,
    expand_dtype_name,
    scrub_options,
)
from fusetui.command_line.parser import command_parsers

FLAGS = [one.flag for one in declared_options().values() if one.flag]


def test_every_field_is_declared() -> None:
    assert list(declared_options()) == list(Options.__dataclass_fields__)


@pytest.mark.parametrize("flag", FLAGS)
def test_every_option_can_be_typed_and_is_in_the_docs(flag: str) -> None:
    assert flag in command_parsers("capture")["capture"].format_help()
    page = (ROOT / "docs" / "capture.md").read_text(encoding="utf-8")
    assert f"| `{flag}" in page


def test_options_that_are_not_given_have_their_default() -> None:
    parsed = vars(
        command_parsers("capture")["capture"].parse_args(["mlp", "--no-shapes"])
    )
    assert {name: parsed[name] for name in declared_options() if name in parsed} == {
        "record_shapes": False
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "--steps must be at least 1, not 0."),
        ({"seconds": 0.0}, "--seconds must be more than 0, not 0."),
        ({"seconds": float("nan")}, "--seconds must be more than 0, not nan."),
        (
            {"device": "tpu"},
            "Unknown device 'tpu': use one of auto, cuda, cpu, cuda:1.",
        ),
        (
            {"dtype": "int8"},
            "Unknown dtype 'int8': use one of float32, bfloat16, float16.",
        ),
        ({"mode": "fast"}, "Unknown mode 'fast': use one of default, reduce-overhead"),
    ],
)
def test_impossible_combinations_of_options_are_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(CaptureError) as error:
        check_options(Options(**options))
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("name", ["bf16", "bfloat16"])
def test_a_dtype_has_short_names(name: str) -> None:
    check_options(Options(dtype=name))
    assert expand_dtype_name(name) == "bfloat16"


def test_a_sweep_takes_less_time_for_each_variant() -> None:
    assert Options().timing_seconds > Options(sweep=("n=1,2",)).timing_seconds
    assert Options(sweep=("n=1,2",), seconds=5).timing_seconds == 5


def test_expectations_are_scrubbed_from_options_and_numbers_stay() -> None:
    found = scrub_options(Options(expect=("mine: gemm=1",), steps=2), str.upper)
    assert (found.expect, found.steps) == (("MINE: GEMM=1",), 2)
