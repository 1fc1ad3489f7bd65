"""Writes traces as vLLM does: the captures of all sizes in one file, whole (FULL) or in
pieces with attention between them (PIECEWISE), each after a pass of warm-up, and steps
that replay them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.analysis.servers import GEMM, HIDDEN, NVJET, call, cpu, gpu, python

Event = dict[str, Any]
NORM = "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdE"
TRITON = "triton_poi_fused_mul_silu_0"
ATTENTION = "paged_attention_ll4mi_QKV_mfma16_kernel"


class Call(NamedTuple):
    """A call of the model: the op, its shapes, the kernel, and the call that launches
    it."""

    op: str
    dims: Sequence[Sequence[int]]
    kernel: str
    hip: str
    cuda: str


class Vllm(NamedTuple):
    """`mode` is that of the graphs; `stacks`: Python was recorded; `names`: HIP's
    calls, which name their kernels."""

    mode: str = "FULL"
    layers: int = 3
    names: bool = True
    stacks: bool = True

    def pieces(self, tokens: int) -> list[list[Call]]:
        """The graphs of one pass: all in one, or what lies between the calls of
        attention."""
        square = [[tokens, HIDDEN], [HIDDEN, HIDDEN]]
        gemm = GEMM if self.names else NVJET
        product = Call(
            "aten::mm", square, gemm, "hipExtModuleLaunchKernel", "cuLaunchKernelEx"
        )
        norm = Call(
            "_C::rms_norm", square[:1], NORM, "hipLaunchKernel", "cudaLaunchKernelExC"
        )
        act = Call(
            TRITON, square[:1], TRITON, "hipModuleLaunchKernel", "cuLaunchKernel"
        )
        before, after = [norm, product], [product, norm, act, product]
        found = [before, *([[*after, *before]] * (self.layers - 1)), after]
        if self.mode == "PIECEWISE":
            return found
        whole = found[0]
        for piece in found[1:]:
            whole = [*whole, self.attention(tokens), *piece]
        return [whole]

    def attention(self, tokens: int) -> Call:
        return Call(
            "vllm::unified_attention_with_output",
            [[tokens, 4, 16]],
            ATTENTION,
            "hipLaunchKernel",
            "cudaLaunchKernel",
        )

    def capture(self, sizes: Sequence[int], at: float = 1000) -> list[Event]:
        """The captures of these numbers of tokens, one after the other."""
        found: list[Event] = []
        for size in sizes:
            events = self._captured(size, at)
            end = max(event["ts"] + event["dur"] for event in events) + 10
            name = f"capture_{size}_{self.mode}"
            found += [cpu(name, at, end - at, "user_annotation"), *events]
            at = end + 100
        return found

    def _captured(self, size: int, at: float) -> list[Event]:
        vendor = "hip" if self.names else "cuda"
        suffix = "" if self.names else "_v10000"
        found: list[Event] = []
        at += 10
        for warm in (True, False):
            for number, piece in enumerate(self.pieces(size)):
                if number:
                    found += self._called(self.attention(size), at, ran=True)
                    at += 20
                if not warm:
                    found.append(call(f"{vendor}ThreadExchangeStreamCaptureMode", at))
                    found.append(call(f"{vendor}StreamBeginCapture{suffix}", at + 5))
                    at += 10
                for one in piece:
                    found += self._called(one, at, ran=warm)
                    at += 20
                if not warm:
                    found.append(call(f"{vendor}StreamEndCapture{suffix}", at))
                    found.append(call(f"{vendor}GraphInstantiateWithFlags", at + 5))
                    at += 10
        return found

    def _called(self, one: Call, at: float, ran: bool) -> list[Event]:
        number = int(at) + 10_000_000 if ran else 0
        name = one.hip if self.names else one.cuda
        driver = (
            {"cat": "cuda_driver"}
            if name.startswith("cu") and name[2:3].isupper()
            else {}
        )
        kernel = {"kernel": one.kernel} if self.names else {}
        types = ["c10::BFloat16"] * len(one.dims)
        args = {"Input Dims": [*one.dims], "Input type": types}
        found = [
            {**cpu(one.op, at + 2, 16), "args": args},
            {**call(name, at + 5, 4, number, **kernel), **driver},
        ]
        if self.stacks:
            found.append(python("model.py(7): forward", at, 19))
        return [*found, gpu(one.kernel, at + 12, 5, number)] if ran else found

    def step(
        self, name: str, size: int, at: float, number: int, skip: int = 0
    ) -> list[Event]:
        """A step of this annotation that replays the graphs of `size`; `skip`: of the
        first so many graphs nothing was recorded."""
        vendor = "hip" if self.names else "cuda"
        pieces = self.pieces(size)
        found = [cpu(name, at, 100 * len(pieces) + 50, "user_annotation")]
        for n, piece in enumerate(pieces):
            begin = at + 100 * n
            if n:
                found += self._called(self.attention(size), begin, ran=True)
            if n < skip:
                continue
            found.append(call(f"{vendor}GraphLaunch", begin + 20, 4, number + n))
            nodes = enumerate(piece)
            found += [
                gpu(one.kernel, begin + 24 + k, 0.9, number + n) for k, one in nodes
            ]
        return found
