"""Writes small traces of inference servers: the capture of graphs, and steps that
replay them.

A model is layers of four kernels between an embedding and a product: each layer has a
norm, a product with its weights, attention and a pointwise kernel.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fusetui.trace import Trace, open_trace

Event = dict[str, Any]
HIDDEN = 64
GEMM = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x256_MI16x16x1_SN"
NVJET = "nvjet_sm90_tst_64x16_64x16_4x1_v_bz_TNT"
EMBEDDING = (
    "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int)"
)
CAST = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda()#1}>(int)"
)


class Launch(NamedTuple):
    """What one call of the model launches."""

    op: str
    kernel: str
    module: str
    dims: Sequence[Sequence[int]]
    ns: int = 1000


class Server(NamedTuple):
    """`hip`: its launch calls name their kernels, as HIP's do."""

    hip: bool = True
    layers: int = 3
    model: str = "Tiny"
    product: str = GEMM

    def launches(self, size: int) -> list[Launch]:
        """The calls of one pass with this number of requests."""
        found = [
            Launch("aten::embedding", EMBEDDING, "Embedding_0", [[100, HIDDEN], [size]])
        ]
        for layer in range(self.layers):
            square = [[size, HIDDEN], [HIDDEN, HIDDEN]]
            found += [
                Launch(
                    "norm::rms",
                    "my_rms_norm",
                    f"RMSNorm_{layer}",
                    [[size, HIDDEN]],
                    2000,
                ),
                Launch("aten::mm", self.product, f"Linear_{layer}", square, 10_000),
                Launch(
                    "attn::paged",
                    "my_attention",
                    f"Attention_{layer}",
                    [[size, HIDDEN]],
                    4000,
                ),
                Launch("aten::copy_", CAST, f"Linear_{layer}", [[size, HIDDEN]], 500),
            ]
        return found

    def capture(self, size: int, at: float = 1000, named: bool = True) -> list[Event]:
        """The events of the capture of one graph from `at` us on, each launch in its
        module, after one pass of warm-up that runs."""
        prefix = "hip" if self.hip else "cuda"
        launches = self.launches(size)
        length = 100 + 40 * len(launches)
        found = (
            [cpu(f"capture_{size}_DECODE", at, length + 80, "user_annotation")]
            if named
            else []
        )
        found += self._called(launches[0], at + 10, prefix, 900_000 + int(at), ran=True)
        found.append(call(f"{prefix}StreamBeginCapture", at + 50))
        found.append(python(f"nn.Module: {self.model}_0", at + 60, length))
        for number, launch in enumerate(launches):
            found += self._called(launch, at + 70 + 40 * number, prefix, 0, ran=False)
        found.append(call(f"{prefix}StreamEndCapture", at + 75 + length))
        return found

    def _called(
        self, launch: Launch, at: float, prefix: str, number: int, ran: bool
    ) -> list[Event]:
        kernel = {"kernel": launch.kernel} if self.hip else {}
        shapes = {
            "Input Dims": [*launch.dims],
            "Input type": ["c10::BFloat16"] * len(launch.dims),
            "Input Strides": [[HIDDEN, 1][-len(dims) :] for dims in launch.dims],
        }
        found = [
            python(f"nn.Module: {launch.module}", at, 30),
            python("model.py(7): forward", at + 1, 28),
            {**cpu(launch.op, at + 5, 20), "args": shapes},
            call(f"{prefix}LaunchKernel", at + 10, 4, number, **kernel),
        ]
        return [*found, gpu(launch.kernel, at + 20, 5, number)] if ran else found

    def step(
        self,
        size: int,
        at: float,
        number: int,
        name: str = "",
        cut: slice = slice(None),
    ) -> list[Event]:
        """A step of this batch that replays the graph of `size`, its call at `at` us;
        `cut`: the nodes that were recorded."""
        prefix = "hip" if self.hip else "cuda"
        launches = self.launches(size)[cut]
        name = name or f"step[DECODE bs={size}]"
        found = [
            cpu(name, at, 60, "user_annotation"),
            call(f"{prefix}GraphLaunch", at + 10, 40, number),
        ]
        begin = at + 20.0
        for launch in launches:
            found.append(gpu(launch.kernel, begin, launch.ns / 1000, number))
            begin += launch.ns / 1000 + 0.5
        return found


def cpu(name: str, ts: float, dur: float, cat: str = "cpu_op") -> Event:
    return {
        "ph": "X",
        "cat": cat,
        "pid": 1,
        "tid": 1,
        "name": name,
        "ts": ts,
        "dur": dur,
    }


def python(name: str, ts: float, dur: float) -> Event:
    return cpu(name, ts, dur, "python_function")


def call(name: str, ts: float, dur: float = 2, number: int = 0, **args: Any) -> Event:
    return {
        **cpu(name, ts, dur, "cuda_runtime"),
        "args": {"correlation": number, **args},
    }


def gpu(
    name: str, ts: float, dur: float, number: int, cat: str = "kernel", **args: Any
) -> Event:
    return {
        **{
            "ph": "X",
            "cat": cat,
            "pid": 0,
            "tid": 7,
            "name": name,
            "ts": ts,
            "dur": dur,
        },
        "args": {"correlation": number, **args},
    }


MI300 = {"id": 0, "name": "AMD Instinct MI300X", "numSms": 304}


def save(path: Path, *parts: Sequence[Event]) -> Path:
    """Writes a trace of these events."""
    events = [event for part in parts for event in part]
    path.write_text(json.dumps({"deviceProperties": [MI300], "traceEvents": events}))
    return path


def opened(path: Path, *parts: Sequence[Event]) -> Trace:
    return open_trace(str(save(path, *parts)))
