"""Names are untrusted: nothing raises, nothing leaks, nothing takes more than linear
time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusetui.gpu.kernel_names import decode, short_name

BEGINNINGS = (
    "void at::native::vectorized_elementwise_kernel<4, ",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<",
    "ampere_sgemm_128x128",
    "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize1x1x1",
    "cutlass_80_tensorop_s1688gemm",
    "void cutlass::device_kernel<flash::",
    "cutlass3x_sm90_tensorop_",
    "Cijk_Alik_Bljk_BBS",
    "triton_poi_fused_",
    "igemm_fwd_gtcx_nhwc_bf16_",
    "nvjet_tst_128x8_64x8_1x1",
    "ncclDevKernel_",
    "_ZN2ck3fooI",
    "bmm_Bfloat16_E4m3E4m3_Fp32",
    "fmhaSm100aKernel_QkvE4m3OE4m3H1",
    "void flash::flash_fwd_kernel<",
    "std::enable_if<",
    "_attn_",
)
FILLINGS = (
    "a",
    "_",
    "1",
    "_a",
    "A::",
    "<",
    ">",
    "(",
    "128, ",
    "_add",
    "Li1E",
    "x1",
    "\x1b[",
    "é",
)

names = st.one_of(
    st.text(max_size=200),
    st.builds(
        "".join,
        st.lists(
            st.one_of(
                st.sampled_from(BEGINNINGS), st.sampled_from(FILLINGS), st.text()
            ),
            max_size=6,
        ),
    ),
)


def is_plain(text: str) -> bool:
    return (
        text.isprintable() and "[" not in text and "]" not in text and len(text) <= 48
    )


@settings(max_examples=300, deadline=None)
@given(names)
def test_any_text_decodes_to_plain_text_and_ordered_parts(name: str) -> None:
    assert is_plain(short_name(name))
    found = decode(name)
    if found is None:
        return
    assert found.name == name
    assert found.short.isascii()
    assert is_plain(found.short)
    end = 0
    for start, stop, meaning in found.parts:
        assert end <= start < stop <= len(name)
        assert meaning
        assert is_plain(meaning[:40])
        end = stop


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_long_names_return(beginning: str) -> None:
    for filling in FILLINGS:
        name = (beginning + filling * (100_000 // len(filling)))[:100_000]
        assert is_plain(short_name(name))
        decode(name[:10_000])


def test_each_name_is_decoded_once() -> None:
    """However often all names of a large trace are asked about."""
    names = [f"kernel_number_{number}" for number in range(20_000)]
    decode.cache_clear()
    for _ in range(2):
        for name in names:
            decode(name)
    assert decode.cache_info().misses == len(names)
