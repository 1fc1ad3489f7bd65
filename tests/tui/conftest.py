"""A small trace like that of an MLP on one GPU, the same on every machine, and text
snapshots."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fusetui.trace import Trace
from fusetui.tui.layout.view import Side, View, make_first_views, make_sides

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
GELU = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl"
    "(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#1}, at::detail::Array<char*, 2> >"
)
WORK = (
    ("aten::linear", "aten::mm", GEMM, 180),
    ("aten::linear", "aten::mm", GEMM, 182),
    ("aten::gelu", "", GELU, 110),
    ("aten::mul", "", "triton_poi_fused_mul_0", 84),
)
SCREENS = Path(__file__).parent / "screens"


def mlp_events(steps: int = 2) -> list[dict[str, Any]]:
    """Steps of 700 us; each op launches one kernel; times are exact microseconds."""
    events: list[dict[str, Any]] = []
    for step in range(steps):
        begin, gpu = step * 700, step * 700 + 60
        annotation = f"ProfilerStep#{step + 3}"
        events.append(_slice(annotation, "user_annotation", begin, 690, 1, 1))
        for number, (outer, inner, kernel, dur) in enumerate(WORK):
            start, link = (
                begin + 10 + number * 40,
                {"correlation": step * 100 + number + 1},
            )
            events.append(_slice(outer, "cpu_op", start, 30, 1, 1))
            if inner:
                events.append(_slice(inner, "cpu_op", start + 4, 22, 1, 1))
            events.append(
                _slice("cudaLaunchKernel", "cuda_runtime", start + 10, 8, 1, 1, link)
            )
            events.append(_slice(kernel, "kernel", gpu, dur, 0, 7, link))
            gpu += dur + 5
    return events


def _slice(
    name: str,
    cat: str,
    ts: int,
    dur: int,
    pid: int,
    tid: int,
    args: dict[str, Any] | None = None,
) -> dict[str, Any]:
    event = {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": ts,
        "dur": dur,
    }
    return {**event, "args": args} if args else event


@pytest.fixture(scope="session", autouse=True)
def terminal() -> Iterator[None]:
    """One with all colors, whatever the tests run in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("COLORTERM", "truecolor")
        yield


@pytest.fixture
def frozen_again() -> Iterator[None]:
    """For a test whose app has the collector look at all objects again: what all tests
    are made of is passed over afterwards, as before."""
    yield
    gc.freeze()


@pytest.fixture
def mlp(trace_of: Callable[..., Trace]) -> Trace:
    device = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}]
    return trace_of(mlp_events(), deviceProperties=device)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """The same trace as a file."""
    file = tmp_path / "mlp.json"
    device = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}]
    file.write_text(
        json.dumps({"deviceProperties": device, "traceEvents": mlp_events()})
    )
    return str(file)


@pytest.fixture
def side(mlp: Trace) -> Side:
    return make_sides([mlp], ["mlp"])[0]


@pytest.fixture
def view(side: Side) -> View:
    return make_first_views([side])[0]


@pytest.fixture
def matches_screen() -> Callable[[str, str], None]:
    """Compares a text with tests/tui/screens/NAME.txt; FUSETUI_UPDATE_SCREENS=1 writes
    it."""

    def compare(name: str, text: str) -> None:
        path = SCREENS / f"{name}.txt"
        shown = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
        if os.environ.get("FUSETUI_UPDATE_SCREENS"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(shown, encoding="utf-8")
        assert shown == path.read_text(encoding="utf-8")

    return compare
