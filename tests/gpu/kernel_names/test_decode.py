"""decode and short_name as a whole."""

import pytest
from tests.gpu.kernel_names.conftest import Says

from fusetui.gpu.kernel_names import decode, short_name


def test_json_has_only_what_is_settled() -> None:
    found = decode("ampere_sgemm_128x64_tn")
    assert found is not None
    json = found.to_json()
    assert json["tile_m"] == 128
    assert "stages" not in json


def test_descriptor_suffix_of_rocm(says: Says) -> None:
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
