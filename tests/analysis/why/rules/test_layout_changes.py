"""Libraries transpose images."""

from __future__ import annotations

import pytest

from .conftest import Ask
from .work import ADD, COPY, search, tried, work

CUDNN = (
    "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (int)2>(int)"
)
MIOPEN = "batched_transpose_32x32_half"


@pytest.mark.parametrize(("name", "library"), [(CUDNN, "cuDNN"), (MIOPEN, "MIOpen")])
def test_layout_changes_reports_transpositions_of_libraries(
    found: Ask, name: str, library: str
) -> None:
    """Two transpositions of 30 and 20 us beside 150 us of other work."""
    kernels = [(name, 30), ("conv", 100), (name, 20), ("bn", 50)]
    (finding,) = found(
        "layout-changes", work(*(("aten::conv2d", *one) for one in kernels))
    )
    assert finding.at_stake_ns == 50_000
    assert finding.text == (
        f"2 kernels of {library} take 50 us (25.0 % of the span) to change tensor "
        "layouts for convolutions."
    )


def test_copies_of_pytorch_are_another_rule(found: Ask) -> None:
    assert (
        found("layout-changes", work(("aten::copy_", COPY, 30), ("aten::add", ADD, 70)))
        == []
    )


def test_layout_changes_on_rocm_advises_the_miopen_variable(found: Ask) -> None:
    events = work(("aten::conv2d", MIOPEN, 30))
    (finding,) = found("layout-changes", events, roctracer_version=4.1)
    assert finding.try_ is not None
    assert "PYTORCH_MIOPEN_SUGGEST_NHWC" in finding.try_


@pytest.mark.parametrize(
    "name",
    [
        "void im2col4d_kernel<float, int>(im2col4d_params, float const*, float*, int)",
        "void flip_filter<float, float>(float*, float const*, int, int, int, int)",
    ],
)
def test_the_steps_of_a_convolution_are_no_change_of_layout(
    found: Ask, name: str
) -> None:
    """Images and filters that are unfolded or flipped: another memory format changes
    nothing."""
    assert (
        found(
            "layout-changes", work(("aten::conv2d", name, 50), ("aten::add", ADD, 50))
        )
        == []
    )


def test_layout_changes_ignores_kernels_of_an_algorithm_search(found: Ask) -> None:
    tries = tried((CUDNN, "conv_a", "conv_b"), 30)
    assert found("layout-changes", search(0, tries, tries[1:])) == []
    (finding,) = found("layout-changes", search(0, tries, tries[:2]))
    assert finding.at_stake_ns == 30_000
