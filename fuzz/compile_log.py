"""The kind of inputs that are logs of torch.compile: built ones with hostile texts and
paths, and damaged ones."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fuzz.campaign import Kind
from fuzz.checks import check
from fuzz.commands import answer
from fuzz.damage import damaged
from tests.compile_logs import Kernel, Line, Log, Recording
from tests.hostile import PAYLOADS

TEXTS = tuple(text.encode("utf-8", "replace").decode() for text in PAYLOADS.values())
ODD: tuple[Any, ...] = (None, True, -1, 1 << 70, 0.5, "x", [], {}, [[]], "\x1b[2J")
PATHS = ("/etc/passwd", "../../x.py", "//h/s", "~/.ssh/id_rsa", "/tmp/k.py", "", "\0")
NAMES = ("cpp_fused_gelu_mul_0", "triton_poi_fused_add_0", "extern_kernels.mm")
OPS = {
    "cpp_fused_gelu_mul_0": "graph_0_cpp_fused_gelu_mul_0",
    "triton_poi_fused_add_0": "triton_poi_fused_add_0",
    "extern_kernels.mm": "aten::mm",
}
KEYS = ("one", "two", "None")
RECORDS = (
    "recompile_reasons",
    "dynamo_graph_break_reason",
    "inductor_provenance_tracking_kernel_stack_traces",
    "inductor_provenance_tracking_node_mappings",
    "fx_graph_cache_hit",
    "inductor_post_grad_graph",
)


def inputs(seed: int, number: int) -> dict[str, bytes]:
    """The files by name: a trace and its logs; always the same for the same numbers."""
    chance = Random(f"compile_log {seed}/{number}")
    files = {}
    for rank in range(chance.choice((1, 1, 1, 2))):
        data = str(_log(chance, rank)).encode("utf-8", "surrogatepass")
        for _ in range(chance.choice((0, 1, 1, 3))):
            data = damaged(data, chance)
        if chance.random() < 0.2:
            data = gzip.compress(data)
        files[f"rank_{rank}.log"] = data
    files["trace.json"] = json.dumps(
        {"traceEvents": _recording(chance).events}
    ).encode()
    return files


def _log(chance: Random, rank: int) -> Log:
    log = Log(rank=chance.choice((None, rank, 1 << 40)))
    for _ in range(chance.choice((0, 1, 2, 8))):
        region = f"{chance.randrange(3)}/{chance.randrange(3)}"
        kernels = [_kernel(chance) for _ in range(chance.choice((0, 1, 3)))]
        log.dynamo_graph({"gelu": _line(chance), "mul": _line(chance)}, region)
        log.graph(
            chance.choice(KEYS),
            kernels,
            region=region,
            attempt=chance.randrange(2),
            cache=chance.choice(("miss", "hit", "bypass")),
            aot_id=chance.choice(("0_forward", "0_backward", "1_inference", "")),
            path=chance.choice(PATHS),
            has_provenance=chance.random() < 0.8,
        )
        log.metrics(region=region, **{"co_name": chance.choice((*ODD, *TEXTS, "f"))})
        if chance.random() < 0.5:
            log.broke(_line(chance), chance.choice(TEXTS), region)
        if chance.random() < 0.5:
            reasons = ["0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5"]
            reasons += chance.sample(TEXTS, 1)
            log.recompiled(*reasons, region=region)
        if chance.random() < 0.3:
            payload = chance.choice(
                (*TEXTS, json.dumps(chance.choice(ODD)), "[" * 5000)
            )
            log.artifact(chance.choice(RECORDS), payload, region)
        if chance.random() < 0.2:
            log.record({chance.choice(("str", "artifact", "x")): chance.choice(ODD)})
    return log


def _kernel(chance: Random) -> Kernel:
    name = chance.choice(NAMES)
    path = chance.choice(PATHS) if name.startswith("triton") else ""
    return Kernel(name, (_line(chance), _line(chance)), ("gelu", "mul"), path)


def _line(chance: Random) -> Line:
    return Line(
        number=chance.choice((0, 1, 23, 10**12)),
        code=chance.choice((*TEXTS, "y = x.sin()")),
        function=chance.choice((*TEXTS, "forward")),
        file=chance.choice((*PATHS, "/home/me/model.py")),
    )


def _recording(chance: Random) -> Recording:
    recording = Recording()
    for _ in range(chance.choice((0, 1, 4))):
        ops = [OPS[chance.choice(NAMES)] for _ in range(chance.choice((0, 1, 3)))]
        recording.call(
            chance.choice(KEYS),
            ops,
            region=f"{chance.randrange(3)}/{chance.randrange(3)}",
            on_gpu=chance.random() < 0.5,
            is_backward=chance.random() < 0.2,
            is_annotated=chance.random() < 0.9,
            files={op: chance.choice(PATHS) for op in ops},
        )
    return recording


def attempt(seed: int, number: int) -> str:
    """What became of it: the exit codes. Raises WrongError for a wrong answer."""
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("FUSETUI_CACHE", "off")
        for name, data in inputs(seed, number).items():
            Path(folder, name).write_bytes(data)
        trace = str(Path(folder, "trace.json"))
        log = str(Path(folder, "rank_0.log"))
        asked = [
            ["compile", trace, "--compile-log", folder],
            ["compile", log],
            ["lines", trace, "--compile-log", folder],
            ["why", trace, "--compile-log", folder],
        ]
        codes = []
        for arguments in asked:
            text = answer(arguments)
            document = answer([*arguments, "--json"])
            check(text.code == document.code, "text and JSON end differently")
            codes.append(str(text.code))
    return f"exit codes {' '.join(codes)}"


def save(seed: int, number: int, what: str, place: Path) -> Path:
    folder = place.with_name(f"{place.name}-compile_log")
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in inputs(seed, number).items():
        (folder / name).write_bytes(data)
    return folder


KIND = Kind("compile_log", attempt, save)
