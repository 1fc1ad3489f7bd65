"""Short texts."""

import pytest

from fusetui.gpu.kernel_names.record import MAX_SHORT, dtype_words, gemm_label, safe


def test_gemm_label() -> None:
    fields = {"dtype_a": "bf16", "dtype_out": "fp32", "tile_m": 64, "tile_n": 32, "tile_k": 16}
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
def test_dtype_words(types: tuple[str, ...], text: str) -> None:
    assert dtype_words(*types) == text


def test_safe_text_is_plain_and_short() -> None:
    assert safe("a\x1b]0;title\x07é") == r"a\x1b)0;title\x07\xe9"
    assert len(safe("x" * 1000)) == MAX_SHORT
