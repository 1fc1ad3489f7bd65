"""Logs of torch.compile as torch writes them, and traces of what was compiled.

Source of the records: torch/_logging/_internal.py, and real logs of torch 2.13.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

HEAD = "V1128 17:05:01.123456 4711 torch/_dynamo/utils.py:2350] "
EPOCH_S = 1_795_884_000
MODEL = "/home/me/model.py"


class Line(NamedTuple):
    """A line of the program."""

    number: int
    code: str
    function: str = "forward"
    file: str = MODEL

    def stack(self) -> str:
        return (
            f'  File "{self.file}", line {self.number}, in {self.function}\n'
            f"    {self.code}\n    {'^' * len(self.code)}\n"
        )


class Kernel(NamedTuple):
    """A call in a wrapper."""

    name: str
    lines: tuple[Line, ...]
    nodes: tuple[str, ...] = ()
    path: str = ""  # of a Triton kernel


class Log:
    """The records of one process."""

    def __init__(self, rank: int | None = None, process: int = 4711) -> None:
        self.texts: list[str] = []
        self._rank = rank
        self._head = HEAD.replace("4711", str(process))

    def record(
        self,
        fields: dict[str, Any],
        payload: str | None = None,
        region: str = "0/0",
        attempt: int = 0,
    ) -> Log:
        frame, compile_ = map(int, region.split("/"))
        fields = {
            **fields,
            "frame_id": frame,
            "frame_compile_id": compile_,
            "attempt": attempt,
        }
        if self._rank is not None:
            fields["rank"] = self._rank
        if payload is not None:
            fields["has_payload"] = hashlib.md5(payload.encode()).hexdigest()
        self.texts.append(f"{self._head}{json.dumps(fields)}\n")
        if payload is not None:
            self.texts += [f"\t{line}\n" for line in payload.split("\n")]
        return self

    def artifact(
        self, name: str, payload: str, region: str = "0/0", attempt: int = 0
    ) -> Log:
        fields = {"artifact": {"name": name, "encoding": "string"}}
        return self.record(fields, payload, region, attempt)

    def graph(
        self,
        key: str,
        kernels: list[Kernel],
        *,
        region: str = "0/0",
        attempt: int = 0,
        cache: str = "miss",
        aot_id: str = "0_inference",
        path: str = "",
        has_provenance: bool = True,
    ) -> Log:
        """The generated code of a graph, its provenance, and its key."""
        path = path or f"/tmp/torchinductor_me/ab/c{key}.py"
        self.record(
            {"inductor_output_code": {"filename": path, "file_path": path}},
            wrapper(kernels, aot_id, has_provenance),
            region,
            attempt,
        )
        if has_provenance:
            handles = [f"{one.name}:{n}" for n, one in enumerate(kernels, start=1)]
            mappings = {
                "preToPost": {},
                "postToPre": {
                    node: [node] for kernel in kernels for node in kernel.nodes
                },
                "cppCodeToPost": {
                    handle: list(kernel.nodes)
                    for handle, kernel in zip(handles, kernels, strict=True)
                },
                "postToCppCode": {},
                "version": 2.0,
            }
            name = "inductor_provenance_tracking_node_mappings"
            self.artifact(name, json.dumps(mappings), region, attempt)
            stacks = {
                handle: [line.stack() for line in kernel.lines]
                for handle, kernel in zip(handles, kernels, strict=True)
            }
            name = "inductor_provenance_tracking_kernel_stack_traces"
            self.artifact(name, json.dumps(stacks), region, attempt)
        key_text = json.dumps({"cache_status_detailed": "full_miss", "key": key})
        return self.artifact(f"fx_graph_cache_{cache}", key_text, region, attempt)

    def dynamo_graph(self, nodes: dict[str, Line], region: str = "0/0") -> Log:
        """Dynamo's own graph: the line of each node."""
        lines = ["class GraphModule(torch.nn.Module):", "    def forward(self, l_x_):"]
        for node, line in nodes.items():
            comment = f"# File: {line.file}:{line.number} in {line.function}, code: {line.code}"
            lines += [f"        {comment}", f'        {node}: "f32[4][1]cpu" = f(l_x_)']
        return self.record({"dynamo_output_graph": {}}, "\n".join(lines), region)

    def metrics(
        self,
        *,
        region: str = "0/0",
        function: str = "forward",
        line: int = 9,
        start_s: float = 0.0,
        seconds: float = 1.0,
        backward: bool = False,
        attempt: int = 0,
        **others: Any,
    ) -> Log:
        fields = {
            "compile_id": region,
            "co_name": function,
            "co_filename": MODEL,
            "co_firstlineno": line,
            "start_time_us": int((EPOCH_S + start_s) * 1e6),
            "duration_us": int(seconds * 1e6),
            **others,
        }
        kind = "bwd_compilation_metrics" if backward else "compilation_metrics"
        return self.record({kind: fields}, None, region, attempt)

    def broke(
        self, line: Line, reason: str, region: str = "0/0", attempt: int = 0
    ) -> Log:
        payload = (
            f"Graph break in user code at {line.file}:{line.number}\n"
            "Graph Break Reason: Encountered graph break when attempting to trace CALL\n\n"
            f"{reason}\n  Explanation: it is not supported.\n  Hint: Do without.\n\n"
            f"User code traceback:\n{line.stack()}\nTraceback (most recent call last):\n"
        )
        return self.artifact("dynamo_graph_break_reason", payload, region, attempt)

    def recompiled(self, *reasons: str, region: str) -> Log:
        text = reasons[0]
        if len(reasons) > 1:
            inner = ",\n".join(json.dumps(reason) for reason in reasons)
            text = f"[\n{inner}\n]"
        return self.artifact("recompile_reasons", text, region)

    def __str__(self) -> str:
        return "".join(self.texts)

    def write(self, folder: Path, name: str = "torch_trace.log") -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        path.write_text(str(self), encoding="utf-8")
        return path


def wrapper(kernels: list[Kernel], aot_id: str, has_provenance: bool = True) -> str:
    """A generated wrapper that calls these kernels in turn."""
    lines = [f"# AOT ID: ['{aot_id}']", "import torch", ""]
    for kernel in {one.name: one for one in kernels}.values():
        if kernel.path:
            lines += [
                f"# kernel path: {kernel.path}",
                "# Topologically Sorted Source Nodes: []",
            ]
            lines += [f"{kernel.name} = async_compile.triton('{kernel.name}', '''"]
            lines += ["import triton", f"def {kernel.name}(in_ptr0):", "    pass"]
            lines += ["''', device_str='cuda')", ""]
        elif kernel.name.startswith("cpp_"):
            lines += [f"{kernel.name} = async_compile.cpp_pybinding(['float*'], r'''"]
            lines += ["void kernel(float* in_ptr0) {", "}", "''')", ""]
    lines += ["class Runner:", "    def call(self, args):", "        arg0_1, = args"]
    for number, kernel in enumerate(kernels, start=1):
        lines += [
            f"        buf{number} = empty_strided_cpu((4, ), (1, ), torch.float32)"
        ]
        if has_provenance:
            lines += [f"        # [Provenance debug handles] {kernel.name}:{number}"]
        if kernel.path:
            lines += ["        stream0 = get_raw_stream(0)"]
            lines += [f"        {kernel.name}.run(arg0_1, 4, stream=stream0)"]
        else:
            lines += [f"        {kernel.name}(arg0_1, buf{number})"]
    lines += ["        return (buf1, )", "", "runner = Runner(partitions=[])"]
    return "\n".join(lines)


class Recording:
    """A trace of calls of compiled graphs on a CPU thread, one after the other."""

    def __init__(self, process: int = 4711) -> None:
        self.events: list[dict[str, Any]] = []
        self._now_us = 1_000.0
        self._process = process
        self._correlation = 0

    def slice(
        self, name: str, category: str, begin_us: float, end_us: float, **args: Any
    ) -> None:
        self.events.append(
            {
                "ph": "X",
                "name": name,
                "cat": category,
                "pid": self._process,
                "tid": self._process,
                "ts": begin_us,
                "dur": end_us - begin_us,
                "args": args,
            }
        )

    def call(
        self,
        key: str,
        ops: list[str],
        *,
        region: str = "0/0",
        on_gpu: bool = False,
        is_backward: bool = False,
        is_annotated: bool = True,
        files: dict[str, str] | None = None,
        nested_us: float = 0.0,
    ) -> Recording:
        """One call of a graph that runs these ops, each for 10 us."""
        begin = self._now_us
        at = begin + 20
        for op in ops:
            args = {"kernel_file": (files or {}).get(op, "")}
            self.slice(op, "cpu_op", at, at + 10, **args)
            if on_gpu:
                self._launch(op, at)
            at += 20
        if is_annotated:
            name = f"## Call CompiledFxGraph {key} ##"
            self.slice(name, "user_annotation", begin + 10, at)
        if not is_backward:
            name = f"Torch-Compiled Region: {region}"
            self.slice(name, "cpu_op", begin, at + 10 + nested_us)
        self._now_us = at + (40 if not nested_us else 5)
        return self

    def _launch(self, op: str, at_us: float) -> None:
        self._correlation += 1
        args = {"correlation": self._correlation}
        self.slice("cudaLaunchKernel", "cuda_runtime", at_us + 2, at_us + 6, **args)
        self.events.append(
            {
                "ph": "X",
                "name": op if op.startswith("triton_") else f"gemm_of_{op}",
                "cat": "kernel",
                "pid": 0,
                "tid": 7,
                "ts": at_us + 8,
                "dur": 5,
                "args": {"device": 0, "stream": 7, **args},
            }
        )

    def write(self, folder: Path, name: str = "trace.json", **keys: Any) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        document = {
            "schemaVersion": 1,
            "baseTimeNanoseconds": EPOCH_S * 1_000_000_000,
            **keys,
            "traceEvents": self.events,
        }
        path.write_text(json.dumps(document), encoding="utf-8")
        return path
