"""The torch.compile log for lesson:mlp-compiled, in the form that TORCH_TRACE
writes.

This module contains the program, its graph and the generated code, as in torch 2.13.
The log contains no compilation times, because none were published.
"""

from __future__ import annotations

import json
from hashlib import md5
from typing import Any

from docs.lessons.figures import BATCH, DIM, HIDDEN, SEQUENCE
from docs.lessons.programs import FUSED_NAME

KEY = "f4kmlplesson"
SCRIPT = "03_simple_mlp.py"
WRAPPER = f"torchinductor/4k/{KEY}.py"
FIRST_LINE = 24
GELU_LINE, MUL_LINE = 25, 26
CODE_OF_LINE = {
    GELU_LINE: 'h = F.gelu(self.gate_proj(x), approximate="tanh")',
    MUL_LINE: "return self.down_proj(h * self.up_proj(x))",
}
ROWS = BATCH * SEQUENCE
PREFIX = "V0401 21:22:30.000000 4242 torch/_logging/structured.py:28] "

KERNELS = {
    "extern_kernels.mm:1": ((GELU_LINE,), ("mm",)),
    "extern_kernels.mm:2": ((MUL_LINE,), ("mm_1",)),
    f"{FUSED_NAME}:3": ((GELU_LINE, MUL_LINE), ("gelu", "mul")),
    "extern_kernels.mm:4": ((MUL_LINE,), ("mm_2",)),
}
"""The lines and the nodes of each call in the wrapper."""
PRE_NODES = {
    "mm": "linear",
    "mm_1": "linear_1",
    "gelu": "h",
    "mul": "mul",
    "mm_2": "linear_2",
}
"""The node of Dynamo's graph that each node of the graph after the passes comes from."""

DYNAMO_GRAPH = f"""\
class GraphModule(torch.nn.Module):
    def forward(self, L_x_):
        l_x_ = L_x_

        # File: {SCRIPT}:{GELU_LINE} in forward, code: {CODE_OF_LINE[GELU_LINE]}
        linear = torch._C._nn.linear(l_x_, gate_proj_weight, None)
        h = torch._C._nn.gelu(linear, approximate = 'tanh')

        # File: {SCRIPT}:{MUL_LINE} in forward, code: {CODE_OF_LINE[MUL_LINE]}
        linear_1 = torch._C._nn.linear(l_x_, up_proj_weight, None)
        mul = h * linear_1
        linear_2 = torch._C._nn.linear(mul, down_proj_weight, None)
        return (linear_2,)
"""
GRAPH = """\
class <lambda>(torch.nn.Module):
    def forward(self, gate_proj_weight, x, up_proj_weight, down_proj_weight):
        mm = torch.ops.aten.mm.default(view, permute)
        mm_1 = torch.ops.aten.mm.default(view, permute_1)
        gelu = torch.ops.aten.gelu.default(_unsafe_view, approximate = 'tanh')
        mul = torch.ops.aten.mul.Tensor(gelu, _unsafe_view_1)
        mm_2 = torch.ops.aten.mm.default(view_1, permute_2)
        return (_unsafe_view_2,)
"""
CODE = f"""\
# AOT ID: ['0_inference']
import torch
import triton
import triton.language as tl
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels

async_compile = AsyncCompile()

# kernel path: torchinductor/{FUSED_NAME}.py
# Topologically Sorted Source Nodes: [h, mul], Original ATen: [aten._unsafe_view, aten.gelu, aten.mul]
{FUSED_NAME} = async_compile.triton('{FUSED_NAME}', '''
import triton
import triton.language as tl

@triton.jit
def {FUSED_NAME}(in_out_ptr0, in_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = {ROWS * HIDDEN}
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    x0 = xindex
    tmp0 = tl.load(in_out_ptr0 + (x0), None).to(tl.float32)
    tmp19 = tl.load(in_ptr0 + (x0), None).to(tl.float32)
    tmp1 = 0.5
    tmp2 = tmp0 * tmp1
    tmp3 = tmp0 * tmp0 * tmp0
    tmp4 = 0.044715
    tmp5 = tmp0 + tmp3 * tmp4
    tmp6 = 0.7978845608028654
    tmp7 = libdevice.tanh(tmp5 * tmp6)
    tmp8 = tmp2 * (tmp7 + 1.0)
    tmp20 = tmp8 * tmp19
    tl.store(in_out_ptr0 + (x0), tmp20, None)
''', device_str='cuda')


async_compile.wait(globals())


def call(args):
    gate_proj_weight, x, up_proj_weight, down_proj_weight = args
    args.clear()
    assert_size_stride(x, ({BATCH}, {SEQUENCE}, {DIM}), ({SEQUENCE * DIM}, {DIM}, 1))
    buf0 = empty_strided_cuda(({ROWS}, {HIDDEN}), ({HIDDEN}, 1), torch.bfloat16)
    # Topologically Sorted Source Nodes: [linear], Original ATen: [aten.mm]
    # [Provenance debug handles] extern_kernels.mm:1
    extern_kernels.mm(x, reinterpret_tensor(gate_proj_weight), out=buf0)
    buf1 = empty_strided_cuda(({ROWS}, {HIDDEN}), ({HIDDEN}, 1), torch.bfloat16)
    # Topologically Sorted Source Nodes: [linear_1], Original ATen: [aten.mm]
    # [Provenance debug handles] extern_kernels.mm:2
    extern_kernels.mm(x, reinterpret_tensor(up_proj_weight), out=buf1)
    buf2 = buf0; del buf0  # reuse
    # Topologically Sorted Source Nodes: [h, mul], Original ATen: [aten.gelu, aten.mul]
    # [Provenance debug handles] {FUSED_NAME}:3
    stream0 = get_raw_stream(0)
    {FUSED_NAME}.run(buf2, buf1, {ROWS * HIDDEN}, stream=stream0)
    buf3 = empty_strided_cuda(({ROWS}, {DIM}), ({DIM}, 1), torch.bfloat16)
    # Topologically Sorted Source Nodes: [linear_2], Original ATen: [aten.mm]
    # [Provenance debug handles] extern_kernels.mm:4
    extern_kernels.mm(buf2, reinterpret_tensor(down_proj_weight), out=buf3)
    return (buf3, )
"""


def compile_log() -> str:
    """Return the records of the log in the order in which torch writes them."""
    stack = [{"line": FIRST_LINE, "name": "forward", "filename": 0}]
    metrics = {
        "compile_id": "0/0",
        "co_name": "forward",
        "co_filename": SCRIPT,
        "co_firstlineno": FIRST_LINE,
        "fail_type": None,
    }
    path = {"filename": WRAPPER, "file_path": WRAPPER}
    return "".join(
        [
            PREFIX + json.dumps({"str": [SCRIPT, 0]}) + "\n",
            _record({"dynamo_start": {"stack": stack}}),
            _record({"dynamo_output_graph": {"sizes": {}}}, DYNAMO_GRAPH),
            _record({"inductor_post_grad_graph": {}}, GRAPH),
            _record({"inductor_output_code": path}, CODE),
            _artifact(
                "inductor_provenance_tracking_node_mappings", json.dumps(_mappings())
            ),
            _artifact(
                "inductor_provenance_tracking_kernel_stack_traces",
                json.dumps(_stacks()),
            ),
            _artifact("fx_graph_cache_miss", json.dumps({"key": KEY})),
            _record({"compilation_metrics": metrics}),
        ]
    )


def _mappings() -> dict[str, Any]:
    """Map each call of the wrapper to the nodes that it computes, and these to their
    origins."""
    return {
        "postToPre": {post: [pre] for post, pre in PRE_NODES.items()},
        "cppCodeToPost": {
            handle: list(nodes) for handle, (_, nodes) in KERNELS.items()
        },
        "version": 2.0,
    }


def _stacks() -> dict[str, list[str]]:
    """Return the Python line of each call of the wrapper as a stack."""
    return {
        handle: [
            f'  File "{SCRIPT}", line {line}, in forward\n    {CODE_OF_LINE[line]}\n'
            for line in lines
        ]
        for handle, (lines, _) in KERNELS.items()
    }


def _artifact(name: str, payload: str) -> str:
    return _record({"artifact": {"name": name, "encoding": "json"}}, payload)


def _record(fields: dict[str, Any], payload: str | None = None) -> str:
    """Return a record of the only region, with the lines of its payload indented by
    tabs."""
    ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    if payload is None:
        return f"{PREFIX}{json.dumps(fields | ids)}\n"
    digest = md5(payload.encode(), usedforsecurity=False).hexdigest()
    head = json.dumps(fields | ids | {"has_payload": digest})
    lines = "".join(f"\t{line}\n" for line in payload.split("\n"))
    return f"{PREFIX}{head}\n{lines}"
