"""The traces that ship with the package."""

import gzip
import json
import re

import pytest

from fusetui import sample_traces

TABLE = sample_traces.path("mlp-eager").with_name("README.md")


def text(name: str) -> str:
    return gzip.decompress(sample_traces.path(name).read_bytes()).decode()


def test_mlp_and_linear_are_there_eager_and_compiled() -> None:
    names = {"mlp-eager", "mlp-compiled", "linear-eager", "linear-compiled"}
    assert names <= set(sample_traces.names())


def test_an_unknown_sample_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="no-such"):
        sample_traces.path("no-such")


def test_a_description_is_one_line_with_shapes_and_device() -> None:
    assert re.fullmatch(
        r".*GEMM.*; .*batch=\d+.*; (CPU|CUDA): .+", sample_traces.describe("mlp-eager")
    )


def test_the_compiled_mlp_shows_a_fused_kernel() -> None:
    assert re.search(r"fused_\w*gelu_mul", text("mlp-compiled"))


@pytest.mark.parametrize("name", sample_traces.names())
def test_a_sample_is_small(name: str) -> None:
    assert sample_traces.path(name).stat().st_size < 300_000


@pytest.mark.parametrize("name", sample_traces.names())
def test_a_sample_has_the_steps_that_its_table_says(name: str) -> None:
    said = re.search(
        r"Each\s+sample\s+has\s+(\d+)\s+profiled steps",
        TABLE.read_text(encoding="utf-8"),
    )
    assert said
    events = json.loads(text(name))["traceEvents"]
    steps = [
        e
        for e in events
        if e.get("cat") == "user_annotation" and "ProfilerStep" in e["name"]
    ]
    assert len(steps) == int(said[1])


@pytest.mark.parametrize("name", sample_traces.names())
def test_a_sample_holds_no_path_and_no_host(name: str) -> None:
    private = re.compile(
        r'"/|"\w:\\|/(home|root|tmp|Users|usr|opt)\b|host_name": "(?!<host1>")'
    )
    assert not private.search(text(name))
