"""Runs the command line in this process, as the console script would."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fusetui.cli import main


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def sentence(self) -> str:
        """The one line on stderr."""
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        return self.err.strip()


@pytest.fixture
def fusetui(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """`fusetui("summary", path)` gives its exit code and what it printed, 80 columns
    wide."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: object, stdin: str = "") -> Result:
        monkeypatch.setattr(sys, "argv", ["fusetui", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code: object
        try:
            code = main()
        except SystemExit as ended:
            code = ended.code
        assert isinstance(code, int)
        return Result(code, *capsys.readouterr())

    return run


def kernel(number: int, name: str, ts: float, dur: float) -> list[dict[str, Any]]:
    """A launch call and its kernel."""
    plain = {"ph": "X", "ts": ts, "args": {"correlation": number}}
    call = {
        "name": "cudaLaunchKernel",
        "cat": "cuda_runtime",
        "pid": 1,
        "tid": 1,
        "dur": 1,
    }
    work = {"name": name, "cat": "kernel", "pid": 0, "tid": 7, "dur": dur}
    return [{**plain, **call}, {**plain, **work, "ts": ts + 5}]


GEMM = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
POINTWISE = "triton_poi_fused__unsafe_view_gelu_mul_0"


def step(number: int, begin: float, scale: float) -> list[dict[str, Any]]:
    """Three GEMMs and a pointwise kernel, under one op each."""
    plain = {"ph": "X", "pid": 1, "tid": 1}
    note = {
        "name": f"ProfilerStep#{number}",
        "cat": "user_annotation",
        "ts": begin,
        "dur": 900 * scale,
    }
    found = [{**plain, **note}]
    for n, name in enumerate([GEMM, GEMM, POINTWISE, GEMM]):
        ts = begin + 10 + 200 * n
        op = {"name": "aten::mm", "cat": "cpu_op", "ts": ts - 1, "dur": 10}
        found += [{**plain, **op}, *kernel(10 * number + n, name, ts, 100.25 * scale)]
    return found


@pytest.fixture
def trace_file(tmp_path: Path) -> Callable[..., Path]:
    """A trace of three steps, or more; `scale` makes its kernels slower."""

    def made(
        name: str = "a.json",
        scale: float = 1,
        steps: int = 3,
        device: str = "NVIDIA A100-SXM4-80GB",
    ) -> Path:
        events = [event for n in range(steps) for event in step(n + 1, 2000 * n, scale)]
        devices = [{"id": 0, "name": device}]
        path = tmp_path / name
        path.write_text(
            json.dumps({"deviceProperties": devices, "traceEvents": events})
        )
        return path

    return made
