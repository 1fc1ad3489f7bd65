"""Cells become runs of text."""

from __future__ import annotations

import numpy as np
import pytest

from fusetui.timeline.cells import NO_SLICE, SEVERAL, Cells
from fusetui.tui.drawing.lane_lines import slices
from fusetui.tui.drawing.schemes import ASCII, COLORLESS, UNICODE
from fusetui.tui.layout.kinds import KINDS, SliceKind, label_of, narrow

GEMM = KINDS.index(SliceKind.GEMM)


def label(row: int) -> str:
    return ["aten::mm", "gemm bf16 128x128"][row]


def cells(*rows: int, covered: int = 100) -> Cells:
    row = np.array(rows, dtype=np.int32)
    used = (row != NO_SLICE).astype(np.int32)
    kind = np.where(row == NO_SLICE, NO_SLICE, GEMM).astype(np.int16)
    return Cells(row, kind, used, used.astype(np.int64) * covered)


def texts(shown: Cells, **more: object) -> list[str]:
    return [text for text, _ in slices(shown, 100, label, UNICODE, **more)]  # type: ignore[arg-type]


def test_a_wide_slice_is_a_block_with_its_label() -> None:
    assert texts(cells(-1, *[0] * 12)) == [" ", " aten::mm   "]


@pytest.mark.parametrize(
    ("width", "label"),
    [(20, " gemm bf16 128x128  "), (13, " gemm bf16   "), (6, " gemm "), (4, "    ")],
)
def test_a_label_loses_words_before_it_is_cut_to_nonsense(
    width: int, label: str
) -> None:
    assert texts(cells(*[1] * width)) == [label]


def test_a_long_word_keeps_its_ends() -> None:
    runs = slices(cells(*[0] * 10), 100, lambda row: "Qwen2DecoderLayer_3", UNICODE)
    assert [text for text, _ in runs] == [" Qwen…er_3"]


def test_an_op_loses_its_namespace_first() -> None:
    assert texts(cells(*[0] * 6)) == [" mm   "]


@pytest.mark.parametrize(("covered", "bar"), [(1, "▁"), (50, "▄"), (100, "█")])
def test_a_single_cell_is_as_high_as_it_is_covered(covered: int, bar: str) -> None:
    assert texts(cells(0, covered=covered)) == [bar]


def test_a_backward_op_loses_what_all_of_them_have() -> None:
    name = "autograd::engine::evaluate_function: AddmmBackward0"
    runs = slices(cells(*[0] * 18), 100, lambda row: name, UNICODE)
    assert runs[0][0] == " AddmmBackward0   "


def test_a_block_beside_another_shows_its_edge() -> None:
    assert texts(cells(*[0] * 12, *[1] * 20)) == [
        " aten::mm   ",
        "▏gemm bf16 128x128  ",
    ]


def test_cells_without_one_slice_are_bars() -> None:
    assert texts(cells(SEVERAL, SEVERAL, 0, 0, covered=50)) == ["▄▄", "  "]


def test_neighboring_bars_of_one_kind_are_one_run() -> None:
    assert texts(cells(0, 1, 0)) == ["███"]


def test_the_selected_slice_is_marked_by_shape() -> None:
    assert texts(cells(*[0] * 12), selected=0) == ["▸aten::mm   "]


def test_a_selected_slice_hidden_by_others_gets_its_cell() -> None:
    runs = slices(
        cells(0, 0, 0), 100, label, UNICODE, selected=1, selected_cells=range(1, 2)
    )
    assert [text for text, _ in runs] == ["█", "◆", "█"]


def test_ascii_draws_without_unicode() -> None:
    runs = slices(cells(0, *[1] * 10), 100, label, ASCII, selected=1)
    assert all(text.isascii() for text, _ in runs)


def test_a_block_is_seen_without_its_color() -> None:
    shown = cells(*[0] * 2, *[1] * 20)
    assert [text for text, _ in slices(shown, 100, label, COLORLESS)] == [
        "gg",
        "▏gemm bf16 128x128 g",
    ]
    assert [text for text, _ in slices(shown, 100, label, ASCII)] == [
        "gg",
        "|gemm bf16 128x128 g",
    ]


@pytest.mark.parametrize(("covered", "bar"), [(20, "▂"), (60, "g")])
def test_a_cell_that_is_busy_for_half_of_its_time_has_a_letter(
    covered: int, bar: str
) -> None:
    shown = cells(0, covered=covered)
    assert [text for text, _ in slices(shown, 100, label, COLORLESS)] == [bar]


def test_names_can_neither_break_the_line_nor_color_it() -> None:
    assert narrow("a\x1b[31mb\nc\u4e2d") == "a·[31mb·c·"


def test_python_frames_are_shown_by_function_first() -> None:
    assert (
        label_of(2, "torch/nn/modules/linear.py(117): forward")
        == "forward linear.py:117"
    )


def test_marks_around_an_annotation_are_no_part_of_its_label() -> None:
    assert label_of(1, "## forward ##") == "forward"
    assert label_of(1, "##") == "##"


def test_the_next_batch_is_called_data_loader() -> None:
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    assert label_of(1, name) == "DataLoader"


def test_built_in_functions_are_called_by_their_names() -> None:
    name = "<built-in method view of Tensor object at 0x7fdc681d0910>"
    assert label_of(2, name) == "view"


@pytest.mark.parametrize(
    ("name", "text"),
    [("cudaLaunchKernel", " LaunchKernel"), ("hipDeviceSynchronize", " Device…ronize")],
)
def test_a_call_loses_what_all_of_them_have(name: str, text: str) -> None:
    """But not a frame such as cuda_graph_runner."""
    runs = slices(cells(*[0] * len(text)), 100, lambda row: name, UNICODE)
    assert runs[0][0] == text
    runs = slices(cells(*[0] * 12), 100, lambda row: "cuda_graph_runner", UNICODE)
    assert runs[0][0] == " cuda_…unner"
