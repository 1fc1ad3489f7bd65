"""`fusetui reproduce`: scripts, folders of them, and lists."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Result
from tests.plain_scripts import check_plain
from tests.recorded_ops import Input, kernel, op, tensor, tensors

from fusetui.sample_traces import path as sample

Run = Callable[..., Result]
SMALL, LARGE = (tensor(8, 8), tensor(8, 8)), (tensor(64, 64), tensor(64, 64))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two products, one op without shapes, and a compiled kernel."""
    plain = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1}
    events = [
        op("aten::mm", *SMALL, ts=0),
        *kernel("small_gemm", 1, 1, dur=5),
        op("aten::mm", *LARGE, ts=20),
        *kernel("large_gemm", 21, 2, dur=50),
        {**plain, "name": "aten::relu", "ts": 40, "dur": 10},
        *kernel("relu_kernel", 41, 3),
        op("aten::cat", tensors(), ts=60),
        *kernel("cat_kernel", 61, 4, dur=2),
        op("triton_poi_fused_0", tensor(8), ts=80),
        *kernel("triton_poi_fused_0", 81, 5, dur=3),
        op("aten::_sparse_mm", Input([4, 4], "float", []), tensor(4, 4), ts=95, dur=1),
        op("aten::quarter", tensor(4, type="c10::\x1b{'\"}"), ts=97, dur=1),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_the_script_of_an_op_is_printed(fusetui: Run, trace: Path) -> None:
    told = fusetui("reproduce", trace, "--op", "mm")
    assert told.code == 0
    check_plain(told.out)
    assert "floats([64, 64], torch.float32, strides=[64, 1])" in told.out
    assert "Of 2 distinct calls, this one took the most time" in told.err


def test_a_script_is_written_and_no_file_is_replaced(
    fusetui: Run, trace: Path, tmp_path: Path
) -> None:
    out = tmp_path / "mm.py"
    told = fusetui("reproduce", trace, "--kernel", "small_gemm", "--out", out)
    assert told.out == f"{out}: aten::mm, 1 call, 5 us of GPU time.\n"
    check_plain(out.read_text())
    again = fusetui("reproduce", trace, "--op", "mm", "--out", out)
    assert again.code == 2
    assert "already exists" in again.sentence


def test_a_folder_has_a_script_for_each_call_and_one_for_all(
    fusetui: Run, trace: Path, tmp_path: Path
) -> None:
    out = tmp_path / "scripts"
    told = fusetui("reproduce", trace, "--top", 5, "--out", out)
    assert sorted(path.name for path in out.iterdir()) == [
        "01_aten_mm.py",
        "02_aten_mm.py",
        "03_triton_poi_fused_0.py",
        "run_all.py",
    ]
    for path in out.iterdir():
        check_plain(path.read_text())
    assert "Skipped: aten::relu: its inputs were not recorded" in told.err
    assert fusetui("reproduce", trace, "--top", 5, "--out", out).code == 2


def test_without_an_option_calls_are_listed(fusetui: Run, trace: Path) -> None:
    lines = fusetui("reproduce", trace).out.splitlines()
    assert lines[0].split()[:2] == ["row", "self"]
    assert "float32[64, 64], float32[64, 64]" in lines[1]
    assert "no script: its inputs were" in lines[2]


def test_json_has_what_a_script_is_made_of(fusetui: Run, trace: Path) -> None:
    document = json.loads(fusetui("reproduce", trace, "--json").out)
    first, second, *_ = document["calls"]
    assert (first["name"], first["kernels"], first["own_ns"]) == (
        "aten::mm",
        ["large_gemm"],
        50_000,
    )
    assert (first["flop"], first["why_not"]) == (2 * 64**3, "")
    assert second["why_not"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--op", "relu"), "aten::relu has no script: its inputs were not recorded"),
        (
            ("--op", "cat"),
            (
                "an empty list or a list of more than 30 tensors, which torch does not "
                "record (argument 1)"
            ),
        ),
        (
            ("--op", "_sparse_mm"),
            ("(sparse or oneDNN), whose layout and number of values are not recorded"),
        ),
        (("--op", "quarter"), "scripts cannot create (argument 1: c10::\\x1b{'\"})"),
        (("--op", "nothing"), "No op of this trace is named nothing"),
        (("--op", "mm", "--row", 1), "Use one of --op and --row, not both"),
        (("--out", "a.py"), "--out needs a selection of calls"),
        (("--module", "Net"), "No module or annotation of this trace is named Net"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    fusetui: Run, trace: Path, options: tuple[object, ...], sentence: str
) -> None:
    told = fusetui("reproduce", trace, *options)
    assert told.code == 2
    assert sentence in told.sentence


def test_a_compiled_kernel_gets_what_to_record(fusetui: Run, trace: Path) -> None:
    told = fusetui("reproduce", trace, "--kernel", "triton")
    check_plain(told.out)
    assert "TORCH_TRACE=" in told.out


def test_torch_is_not_needed_to_write_a_script(fusetui: Run) -> None:
    told = fusetui("reproduce", sample("mlp-eager"), "--op", "gelu")
    assert told.code == 0
    check_plain(told.out)
