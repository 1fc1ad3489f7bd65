"""Every command on an intact trace: exit codes, JSON keys, and the text that users
read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import fusetui as package

Run = Callable[..., Any]
File = Callable[..., Path]

SUMMARY_KEYS = """
    file bytes events events_skipped slices kernels gpu_events gpu_events_linked gpu_events_with_op
    span_ns gpu_span_ns gpu_busy_ns gpu_idle_ns gpu_sum_ns gpu_compute_ns gpu_comm_ns gpu_copy_ns
    devices tracks steps complete
"""


def test_version_prints_the_package_version(fusetui: Run) -> None:
    assert fusetui("--version") == (0, f"fusetui {package.__version__}\n", "")


@pytest.mark.parametrize(
    "command",
    [
        "",
        "capture",
        "open",
        "summary",
        "kernels",
        "ops",
        "launches",
        "modules",
        "lines",
        "diff",
        "why",
        "gaps",
        "scrub",
        "convert",
        "decode",
        "check",
        "samples",
    ],
)
def test_help_of_every_command_has_its_usage(fusetui: Run, command: str) -> None:
    found = fusetui(*command.split(), "--help")
    assert found.code == 0
    assert f"usage: fusetui {command}".strip() in found.out


def test_summary_json_has_the_documented_keys(fusetui: Run, trace_file: File) -> None:
    path = trace_file()
    found = fusetui("summary", path, "--json")
    assert (found.code, found.err) == (0, "")
    assert found.json.keys() >= set(SUMMARY_KEYS.split())
    assert found.json["file"] == str(path)
    assert found.json["kernels"] == found.json["gpu_events_with_op"] == 12
    assert found.json["gpu_sum_ns"] == 12 * 100_250
    assert [step["kernels"] for step in found.json["steps"]] == [4, 4, 4]
    assert found.json["devices"] == ["NVIDIA A100-SXM4-80GB"]


def test_the_share_of_two_gpus_is_of_both_spans(fusetui: Run, tmp_path: Path) -> None:
    """Two spans of 100 us, the second 50 us later, with 20 us of work in each."""
    events = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": "k",
            "pid": gpu,
            "tid": 7,
            "ts": ts,
            "dur": 10,
        }
        for gpu, ts in ((0, 0), (0, 90), (1, 50), (1, 140))
    ]
    path = tmp_path / "two.json"
    path.write_text(json.dumps({"traceEvents": events}))
    assert "GPU span    150 us" in fusetui("summary", path).out
    assert "40 us (20 % of the spans of all GPUs, added up), idle 160 us" in (
        fusetui("summary", path).out
    )


def test_a_gpu_event_without_duration_has_no_share(
    fusetui: Run, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(
        '[{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1}]'
    )
    assert "GPU busy    0 ns, idle 0 ns" in fusetui("summary", path).out


def test_kernels_json_lists_kernels_with_decoded_names(
    fusetui: Run, trace_file: File
) -> None:
    gemm, pointwise = fusetui("kernels", trace_file(), "--json").json["kernels"]
    assert gemm.keys() >= {
        "name",
        "count",
        "total_ns",
        "min_ns",
        "median_ns",
        "max_ns",
        "decoded",
    }
    assert (gemm["count"], gemm["total_ns"], gemm["decoded"]["op"]) == (
        9,
        902_250,
        "gemm",
    )
    assert pointwise["name"] == "triton_poi_fused__unsafe_view_gelu_mul_0"


def test_ops_json_lists_ops_with_their_gpu_time(fusetui: Run, trace_file: File) -> None:
    (op,) = fusetui("ops", trace_file(), "--json").json["ops"]
    assert (
        op.items()
        >= {
            "name": "aten::mm",
            "count": 12,
            "total_ns": 120_000,
            "self_ns": 108_000,
            "gpu_ns": 1_203_000,
            "kernels": 12,
            "mean_ns": 10_000,
            "p10_ns": 10_000,
            "p90_ns": 10_000,
        }.items()
    )


@pytest.mark.parametrize(
    "command", ["summary", "kernels", "ops", "launches", "modules", "lines"]
)
@pytest.mark.parametrize("columns", [40, 80, 200])
def test_fits_the_width(
    fusetui: Run,
    trace_file: File,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    columns: int,
) -> None:
    path = trace_file()
    monkeypatch.setenv("COLUMNS", str(columns))
    found = fusetui(command, path)
    assert found.code == 0
    table = [
        line for line in found.out.splitlines() if "aten::mm" in line or "gemm" in line
    ]
    assert table or command not in ("kernels", "ops") or columns == 40
    assert max(map(len, found.out.splitlines())) <= max(columns, 72)


def test_summary_text_names_device_steps_and_lanes(
    fusetui: Run, trace_file: File
) -> None:
    text = fusetui("summary", trace_file()).out
    for said in (
        "NVIDIA A100-SXM4-80GB",
        "1.203 ms",
        "12 kernels",
        "ProfilerStep#2",
        "stream 7",
    ):
        assert said in text


def test_no_share_of_busy_where_earlier_work_is_missing(
    fusetui: Run, tmp_path: Path, event: Any, launched: Any
) -> None:
    """The first event of stream 9 waits while the program waits for the device."""
    path, args = tmp_path / "a.json", {"correlation": 2}
    other = [
        event("cudaLaunchKernel", 10, 2, cat="cuda_runtime", args=args),
        event("k", 95, 10, cat="kernel", pid=0, tid=9, args=args),
        event("cudaStreamSynchronize", 14, 80, cat="cuda_runtime"),
    ]
    path.write_text(
        json.dumps({"traceEvents": [*launched(1, 0, 5), *other]}), encoding="utf-8"
    )
    busy = "GPU busy    at least 20 us (work launched before the recording also ran)\n"
    assert busy in fusetui("summary", path).out


@pytest.mark.parametrize("command", [("summary",), ("why",), ("why", "--markdown")])
@pytest.mark.parametrize("name", ["sample:mlp-eager", "lesson:mlp-eager"])
def test_summary_and_why_of_a_shipped_trace_begin_with_its_name(
    fusetui: Run, command: Sequence[str], name: str
) -> None:
    assert fusetui(*command, name).out.strip("*").startswith(name)


def test_top_limits_the_rows_and_0_shows_all(fusetui: Run, trace_file: File) -> None:
    path = trace_file()
    assert "1 more name with" in fusetui("kernels", path, "--top", 1).out
    assert "more" not in fusetui("kernels", path, "--top", 0).out


def test_names_are_data(fusetui: Run, tmp_path: Path) -> None:
    path = tmp_path / "evil.json"
    name = r"\u001b]0;owned\u0007[bold]\u202e\ud800"
    path.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "NAME", "dur": 1},'
        '{"ph": "X", "cat": "cpu_op", "name": "NAME", "tid": "NAME", "dur": 1}]}'.replace(
            "NAME", name
        )
    )
    for command in ("summary", "kernels", "ops"):
        found = fusetui(command, path)
        assert found.code == 0
        assert all(
            character.isprintable() or character == "\n" for character in found.out
        )
        assert fusetui(command, path, "--json").code == 0


def test_check_of_a_right_guess_exits_with_0(fusetui: Run, trace_file: File) -> None:
    path = trace_file()
    right = fusetui("check", path, "--expect", "kernels=4 gemm=3 pointwise=1 memcpy=0")
    assert (right.code, right.err) == (0, "")
    assert "Counted kernels in each of 3 steps" in right.out
    wrong = fusetui("check", path, "--expect", "kernels=4,gemm=2")
    assert wrong.code == 1
    assert "! gemm" in wrong.out
    assert "= kernels" in wrong.out


def test_check_json_of_a_wrong_guess_exits_with_1(
    fusetui: Run, trace_file: File
) -> None:
    found = fusetui("check", trace_file(), "--expect", "gemm=2", "--json")
    assert found.code == 1
    assert found.json["per"] == "step"
    assert found.json["right"] is False
    assert found.json["guesses"] == [
        {"kind": "gemm", "expected": 2, "found": [3, 3, 3], "right": False}
    ]


def test_check_without_steps_counts_the_whole_trace(
    fusetui: Run, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "dur": 1}]}'
    )
    found = fusetui("check", path, "--expect", "kernels=1 unknown=1")
    assert found.code == 0
    assert "in the whole trace" in found.out


@pytest.mark.parametrize(
    ("sample", "guess"),
    [
        ("mlp-eager", "kernels=5 gemm=3 pointwise=2"),
        ("mlp-compiled", "kernels=4 gemm=3 pointwise=1"),
        ("linear-eager", "kernels=1 gemm=1"),
        ("linear-compiled", "kernels=1 gemm=1"),
    ],
)
def test_check_on_a_cpu_counts_ops_that_compute(
    fusetui: Run, sample: str, guess: str
) -> None:
    found = fusetui("check", f"sample:{sample}", "--expect", guess)
    assert found.code == 0
    assert "CPU ops that compute" in found.out


def test_decode_prints_fields_of_a_kernel_name(fusetui: Run) -> None:
    name = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
    (record,) = fusetui("decode", name, "--json").json["names"]
    assert {
        key: record[key] for key in ("op", "dtype_a", "tile_m", "tile_n", "tile_k")
    } == {
        "op": "gemm",
        "dtype_a": "bf16",
        "tile_m": 128,
        "tile_n": 256,
        "tile_k": 64,
    }
    text = fusetui("decode", name).out
    assert name in text
    assert "1 " in text


def test_decode_reads_names_from_standard_input(fusetui: Run) -> None:
    found = fusetui(
        "decode", "-", "--json", stdin="ampere_sgemm_32x32_tn\n\nnever_heard_of\n"
    )
    known, unknown = found.json["names"]
    assert known["op"] == "gemm"
    assert unknown["name"] == "never_heard_of"
    assert unknown["family"] is None


def test_decode_long_and_hostile_names(fusetui: Run) -> None:
    found = fusetui("decode", "void at::native::" + "x\x1b" * 90)
    assert found.code == 0
    assert max(map(len, found.out.splitlines())) <= 80
    assert "\x1b" not in found.out


def test_samples_lists_all_sample_traces(fusetui: Run) -> None:
    listed = fusetui("samples", "--json").json["samples"]
    assert {"mlp-eager", "mlp-compiled", "linear-eager", "linear-compiled"} <= {
        sample["name"] for sample in listed
    }
    assert "sample:mlp-eager" in fusetui("samples").out
    for sample in listed:
        assert fusetui("summary", f"sample:{sample['name']}").code == 0


def test_diff_json_of_a_slower_b_has_its_rows(fusetui: Run, trace_file: File) -> None:
    a, b = trace_file("a.json"), trace_file("b.json", scale=1.5)
    found = fusetui("diff", a, b, "--json")
    assert found.code == 0
    assert found.json.keys() >= {"a", "b", "step_ns", "rows"}
    assert found.json["step_ns"].keys() >= {"a", "b", "ratio", "low", "high"}
    row_keys = {"kind", "op", "a", "b", "a_ns", "b_ns", "a_count", "b_count", "why"}
    assert all(row.keys() >= row_keys for row in found.json["rows"])
    assert fusetui("diff", a, b).out
    assert "|" in fusetui("diff", a, b, "--markdown").out


def test_diff_of_the_samples_names_the_fusion(fusetui: Run) -> None:
    found = fusetui("diff", "sample:mlp-eager", "sample:mlp-compiled", "--json")
    fused = [row for row in found.json["rows"] if row["kind"] == "fused"]
    assert any("gelu" in str(row["a"]) and "mul" in str(row["a"]) for row in fused)


def test_diff_fail_over_exits_with_1_beyond_the_threshold(
    fusetui: Run, trace_file: File
) -> None:
    a, b = trace_file("a.json", steps=5), trace_file("b.json", scale=1.9, steps=5)
    slower = fusetui("diff", a, b, "--fail-over", 5)
    assert slower.code == 1
    assert "more than 5 % slower" in slower.sentence
    assert fusetui("diff", b, a, "--fail-over", 5).code == 0
    assert fusetui("diff", a, a, "--fail-over", 0).code == 0


def test_diff_fail_over_with_too_few_steps_exits_with_3(
    fusetui: Run, trace_file: File
) -> None:
    a, b = trace_file("a.json", steps=1), trace_file("b.json", scale=1.9, steps=5)
    found = fusetui("diff", a, b, "--fail-over", 5)
    assert found.code == 3
    assert "whether B is slower: needs at least 5 steps" in found.sentence
    assert fusetui("diff", a, b).code == 0


def test_diff_fail_over_across_devices_exits_with_3(
    fusetui: Run, trace_file: File
) -> None:
    a, b = (
        trace_file("a.json", steps=5),
        trace_file("b.json", 1.9, 5, "NVIDIA H100 80GB HBM3"),
    )
    assert fusetui("diff", a, b, "--fail-over", 5).code == 3


def test_diff_of_no_work_cannot_be_told(
    fusetui: Run, trace_file: File, tmp_path: Path
) -> None:
    nothing = tmp_path / "nothing.json"
    nothing.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "python_function", "name": "f"}]}'
    )
    assert fusetui("diff", trace_file(), nothing, "--fail-over", 5).code == 3


@pytest.mark.parametrize(
    ("steps", "scale", "verdict", "reason"),
    [
        (5, 1.9, "slower", None),
        (5, 0.5, "faster", None),
        (5, 1, "no difference", None),
        (
            4,
            1.9,
            "cannot tell",
            "needs at least 5 steps per trace (A 5, B 4)",
        ),
    ],
)
def test_diff_json_has_a_verdict(
    fusetui: Run,
    trace_file: File,
    steps: int,
    scale: float,
    verdict: str,
    reason: str | None,
) -> None:
    a, b = trace_file("a.json", steps=5), trace_file("b.json", scale, steps)
    found = fusetui("diff", a, b, "--json").json
    assert (found["verdict"], found["reason"]) == (verdict, reason)


def test_diff_of_a_run_folder(fusetui: Run, trace_file: File, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("eager", "compiled"):
        trace_file(f"run/{name}.json")
    record = '{"variants": [{"files": ["eager.json"]}, {"failed": "x"}, {"files": ["compiled.json"]}]}'
    (run / "run.json").write_text(record)
    found = fusetui("diff", run, "--json")
    assert found.code == 0
    assert "eager" in str(found.json["a"])
