"""`kernels --by`, `ops --by`, `--peak` and `launches`, as users and scripts call
them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
GEMM = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
LAUNCH = {"grid": [24, 32, 1], "block": [256, 1, 1]}
LAUNCH |= {"registers per thread": 230, "shared memory": 81920}  # type: ignore[dict-item]
LIMITS = {
    "computeMajor": 8,
    "computeMinor": 0,
    "numSms": 108,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 167936,
}
FLOP = 2 * 8192 * 3072 * 768


@pytest.fixture
def products(tmp_path: Path) -> Callable[..., Path]:
    """Two products of equal shapes, 200 and 300 us, and one of other shapes."""

    def made(device: str = "NVIDIA A100-SXM4-80GB", shapes: bool = True) -> Path:
        events: list[dict[str, Any]] = []
        for n, us in enumerate((200, 300, 100)):
            sizes = [[8192, 768], [768, 3072 if n < 2 else 64]]
            inputs = {"Input Dims": sizes, "Input type": ["c10::BFloat16"] * 2}
            link = {"correlation": n + 1}
            cpu = {"ph": "X", "pid": 1, "tid": 1}
            gpu = {
                "ph": "X",
                "pid": 0,
                "tid": 7,
                "cat": "kernel",
                "args": {**LAUNCH, **link},
            }
            events += [
                {**cpu, "cat": "cpu_op", "name": "aten::mm", "ts": 100 * n, "dur": 50}
                | ({"args": inputs} if shapes else {}),
                {
                    **cpu,
                    "cat": "cuda_runtime",
                    "name": "cudaLaunchKernel",
                    "ts": 100 * n + 5,
                }
                | {"dur": 10, "args": link},
                {**gpu, "name": GEMM, "ts": 1000 * (n + 1), "dur": us},
            ]
        devices = [{"id": 0, "name": device, **LIMITS}]
        path = tmp_path / "products.json"
        path.write_text(
            json.dumps({"deviceProperties": devices, "traceEvents": events})
        )
        return path

    return made


def test_kernels_by_shape_lists_shapes_flop_and_share_of_peak(
    fusetui: Run, products: Callable[..., Path]
) -> None:
    found = fusetui("kernels", products(), "--by", "shape", "--json").json
    large, small = found["kernels"]
    assert found["by"] == "shape"
    assert (
        large.items()
        >= {
            "name": GEMM,
            "op": "aten::mm",
            "shapes": [[8192, 768], [768, 3072]],
            "dtypes": ["bf16", "bf16"],
            "count": 2,
            "total_ns": 500_000,
            "mean_ns": 250_000,
            "p10_ns": 210_000,
            "p90_ns": 290_000,
            "effective_ns": 500_000,
            "flop": 2 * FLOP,
            "flop_ns": 500_000,
            "bytes_ns": 500_000,
            "share_ns": 500_000,
            "bound": "compute",
        }.items()
    )
    assert large["share_of_peak"] == pytest.approx(2 * FLOP / 312e12 / 500e-6)
    assert large["waves"] == pytest.approx(768 / 108)
    # the grid is that of other tiles
    assert (small["count"], small["waves"]) == (1, None)


def test_kernels_json_lists_devices_with_their_peaks(
    fusetui: Run, products: Callable[..., Path]
) -> None:
    (device,) = fusetui("kernels", products(), "--json").json["devices"]
    assert (device["device"], device["name"]) == (0, "NVIDIA A100-SXM4-80GB")
    assert (device["peaks"]["bf16"], device["peaks"]["bandwidth"]) == (312e12, 2039e9)
    assert device["given"] == []


def test_peaks_that_are_given(fusetui: Run, products: Callable[..., Path]) -> None:
    peaks = ("--peak", "bf16=156e12", "--peak", "bandwidth=3.0e12")
    found = fusetui("kernels", products(), "--by", "shape", "--json", *peaks).json
    assert (
        found["devices"][0]["peaks"].items()
        >= {"bf16": 156e12, "bandwidth": 3e12}.items()
    )
    assert found["devices"][0]["given"] == ["bandwidth", "bf16"]
    share = found["kernels"][0]["share_of_peak"]
    assert share == pytest.approx(2 * FLOP / 156e12 / 500e-6)


def test_an_unknown_device_is_named(
    fusetui: Run, products: Callable[..., Path]
) -> None:
    path = products("NVIDIA Something")
    assert fusetui("kernels", path, "--json").json["devices"][0]["peaks"] is None
    text = fusetui("kernels", path).out
    assert "of peak" not in text
    assert (
        "The peak rates of NVIDIA Something are unknown. Set these rates with, for\n"
        "example, --peak"
    ) in text
    known = fusetui(
        "kernels", path, "--peak", "bf16=312e12", "--peak", "bandwidth=2.0e12"
    ).out
    assert "of peak" in known
    assert "are unknown" not in known


def test_without_shapes_it_says_how_to_record_them(
    fusetui: Run, products: Callable[..., Path]
) -> None:
    assert "record_shapes=True" in fusetui("kernels", products(shapes=False)).out


def test_ops_by_shape_lists_gpu_time_of_each_shape(
    fusetui: Run, products: Callable[..., Path]
) -> None:
    large, small = fusetui("ops", products(), "--by", "shape", "--json").json["ops"]
    assert (large["count"], large["kernels"], large["gpu_ns"]) == (2, 2, 500_000)
    assert small["shapes"] == [[8192, 768], [768, 64]]
    assert (
        "[8192, 768] bf16, [768, 64] bf16"
        in fusetui("ops", products(), "--by", "shape").out
    )


@pytest.mark.parametrize("columns", [80, 100])
def test_the_share_of_the_peak_stays_where_there_is_little_room(
    fusetui: Run,
    products: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for by in ("name", "shape", "op", "module"):
        assert (
            "of peak" in fusetui("kernels", products(), "--by", by).out.splitlines()[0]
        ), by


def test_in_a_pipe_no_name_is_cut(
    fusetui: Run, products: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = "aten::mm   [8192, 768] bf16, [768, 3072] bf16"
    assert inputs not in fusetui("kernels", products(), "--by", "shape").out
    monkeypatch.delenv("COLUMNS")
    assert inputs in fusetui("kernels", products(), "--by", "shape").out


@pytest.mark.parametrize("command", ["summary", "kernels"])
def test_in_a_pipe_the_name_of_a_kernel_is_whole(
    fusetui: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    name = f"my_{'long_' * 12}kernel"
    kernel = {
        "ph": "X",
        "pid": 0,
        "tid": 7,
        "cat": "kernel",
        "name": name,
        "ts": 1,
        "dur": 2,
    }
    path = tmp_path / "long.json"
    path.write_text(json.dumps({"traceEvents": [kernel]}))
    assert name not in fusetui(command, path).out
    monkeypatch.delenv("COLUMNS")
    assert name in fusetui(command, path).out


def test_a_trace_without_kernels_says_why(fusetui: Run, tmp_path: Path) -> None:
    op = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        "pid": 1,
        "tid": 1,
        "ts": 1,
        "dur": 9,
    }
    copy = {**op, "cat": "gpu_memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": 7}
    device = {**op, "cat": "mtia_ccp_events", "name": "gemm", "pid": 0, "tid": 7}
    path = tmp_path / "a.json"
    for more, says in (
        ([], "no GPU events were recorded (fusetui ops lists the CPU ops)"),
        ([copy], "its GPU event is not a kernel"),
        ([device], "its device work is not recorded as kernels"),
    ):
        path.write_text(json.dumps({"traceEvents": [op, *more]}))
        found = fusetui("kernels", path)
        assert (found.code, " ".join(found.out.split())) == (
            0,
            f"no kernels in this trace: {says}",
        )


@pytest.mark.parametrize(
    ("by", "says"),
    [("op", "aten::mm"), ("stream", "GPU 0 stream 7"), ("step", "no step")],
)
def test_kernels_by_any_grouping_prints_a_table(
    fusetui: Run, products: Callable[..., Path], by: str, says: str
) -> None:
    assert says in fusetui("kernels", products(), "--by", by).out


def test_launches_json_lists_calls_and_the_queue(
    fusetui: Run, products: Callable[..., Path]
) -> None:
    found = fusetui("launches", products(), "--json").json
    (thread,), (queue,) = found["threads"], found["queues"]
    assert thread["calls"] == [
        {
            "name": "cudaLaunchKernel",
            "count": 3,
            "total_ns": 30_000,
            "mean_ns": 10_000,
            "p99_ns": 10_000,
            "max_ns": 10_000,
            "share": 30_000 / 250_000,
            "events": 3,
        }
    ]
    assert (queue["name"], queue["most"]) == ("GPU 0 queue", 3)
    assert found["graphs"] == []
    text = fusetui("launches", products()).out
    assert "thread 1 of process 1" in text
    assert "GPU 0 queue" in text


def test_kernels_by_library_are_listed_as_text(
    fusetui: Run, products: Callable[..., Path]
) -> None:
    """Also those whose library their name does not show."""
    path = products()
    content = path.read_text().replace(GEMM, "a_kernel_of_ours", 1)
    path.write_text(content)
    lines = fusetui("kernels", path, "--by", "library").out.splitlines()
    assert lines[0].endswith("  library")
    libraries = {line.rpartition("  ")[2] for line in lines[1:3]}
    assert libraries == {"cublas-legacy", "unrecognized name"}
