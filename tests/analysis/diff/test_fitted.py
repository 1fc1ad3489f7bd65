"""In little room a line keeps what tells most of it."""

from __future__ import annotations

import pytest

from fusetui.report.diff_lines import APART, DiffLine, fitted

PLACE, OP, KERNEL = (
    "execute_32_context_8_generation_0",
    "aten::bmm",
    "gemm bf16 128x128x64",
)


def line(*parts: str, times: str = "") -> DiffLine:
    what = APART.join(parts) + times
    return DiffLine("-", "removed", 9, None, -9, what, parts=parts, times=times)


@pytest.mark.parametrize(
    ("most", "text", "left_out"),
    [
        (80, f"{PLACE}  {OP}  {KERNEL}  x24", ()),
        (50, f"execute_32_…  {OP}  {KERNEL}  x24", (PLACE,)),
        (40, f"{OP}  {KERNEL}  x24", (PLACE,)),
        (26, f"{KERNEL}  x24", (PLACE, OP)),
        (20, "gemm bf16 128x…  x24", (PLACE, OP)),
    ],
)
def test_the_place_goes_first_and_the_kernel_last(
    most: int, text: str, left_out: tuple[str, ...]
) -> None:
    found = fitted(line(PLACE, OP, KERNEL, times="  x24"), most)
    assert found == (text, left_out)
    assert len(text) <= most


@pytest.mark.parametrize("most", [1, 5, 9, 12])
def test_fitted_line_is_never_wider_than_its_room(most: int) -> None:
    assert (
        len(fitted(line(PLACE, f"{OP} -> {KERNEL}", times="  x123456"), most)[0])
        <= most
    )


def test_of_what_was_fused_both_sides_can_be_seen() -> None:
    found, _ = fitted(
        line(PLACE, "aten::gelu + aten::mul + aten::add -> triton_poi_fused_add"), 32
    )
    assert found == "aten::gelu + … -> triton_poi_fu…"
    found, _ = fitted(line("aten::gelu + aten::mul + aten::add -> triton_poi"), 32)
    assert found == "aten::gelu + aten… -> triton_poi"


def test_a_line_without_parts_is_cut_at_its_end() -> None:
    whole = DiffLine("", "idle", 9, 9, 0, "no GPU event runs in the step")
    assert fitted(whole, 12)[0] == "no GPU even…"


def test_a_line_inside_a_region_stays_indented_when_cut() -> None:
    inner = DiffLine("", "same", 9, 9, 0, f"  {PLACE}  {KERNEL}", parts=(PLACE, KERNEL))
    assert fitted(inner, 24)[0] == f"  {KERNEL}"
