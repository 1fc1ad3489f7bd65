"""Records: what is given, and short texts."""

import re

import msgspec
import pytest
from tests.gpu.kernel_names.conftest import Says

from fusetui.gpu.kernel_names import decode, short_name
from fusetui.gpu.kernel_names.record import (
    MAX_SHORT,
    build,
    dtype_words,
    explain,
    gemm_label,
    safe,
)


def test_json_has_only_what_is_settled() -> None:
    found = decode("ampere_sgemm_128x64_tn")
    assert found is not None
    json = msgspec.to_builtins(found)
    assert json["tile_m"] == 128
    assert "stages" not in json


def test_suffix_kd_of_rocm_is_ignored(says: Says) -> None:
    says("attn_fwd.kd", op="attention")
    says("triton_poi_fused_add_0 [clone .kd]", fused_ops=("add",))


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("ampere_sgemm_128x64_tn", "gemm fp32 128x64 tn sm80"),
        ("void my::lib::kernel<int, 4>(int*)", "my::lib::kernel"),
        ("void (anonymous namespace)::thing<1>(int)", "thing"),
        ("a" * 60, "a" * 47 + "…"),
        ("", "(no name)"),
        ("\x1b[31mred\x07", r"\x1b(31mred\x07"),
        ("[bold]x[/]", "(bold)x(/)"),
    ],
)
def test_every_name_has_a_short_text(name: str, short: str) -> None:
    assert short_name(name) == short


def test_parts_are_sorted_and_apart() -> None:
    parts = [(5, 9, "c"), (0, 4, "a"), (3, 6, "b"), (9, 9, "empty")]
    assert build("name", "family", "short", parts).parts == ((0, 4, "a"), (5, 9, "c"))


def test_words_between_underscores_are_explained_one_by_one() -> None:
    name = "x_relu__bias_y"
    match = re.fullmatch("x(?P<rest>.*)", name)
    parts = explain(match, {}, {"relu": "R", "bias": "B"}.get) if match else []
    assert [(name[start:end], text) for start, end, text in parts] == [
        ("relu", "R"),
        ("bias", "B"),
    ]


def test_gemm_label_has_types_tile_and_kind() -> None:
    fields = {
        "dtype_a": "bf16",
        "dtype_out": "fp32",
        "tile_m": 64,
        "tile_n": 32,
        "tile_k": 16,
    }
    assert gemm_label("gemm", fields, None, "wmma") == "gemm bf16->fp32 64x32x16 wmma"


@pytest.mark.parametrize(
    ("types", "text"),
    [
        (("bf16", "bf16", "bf16"), "bf16"),
        (("bf16", "fp8", "bf16"), "bf16*fp8"),
        (("fp16", None, "fp32"), "fp16->fp32"),
        ((None, None, "fp32"), "fp32"),
    ],
)
def test_dtype_words_join_equal_types(types: tuple[str, ...], text: str) -> None:
    assert dtype_words(*types) == text


def test_safe_text_is_plain_and_short() -> None:
    assert safe("a\x1b]0;title\x07é") == r"a\x1b)0;title\x07\xe9"
    assert len(safe("x" * 1000)) == MAX_SHORT
