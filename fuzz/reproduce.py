"""The kind of inputs that are ops with hostile names, arguments and kernels: the scripts
that make them again hold nothing of it but literals."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from fuzz.campaign import Kind
from fuzz.checks import check
from fuzz.commands import answer
from tests.compile_logs import Kernel, Log, wrapper
from tests.hostile import PAYLOADS
from tests.plain_scripts import check_plain

from fusetui.commands.errors import DONE
from fusetui.report.reproduce.script import GENERATED_ENDING

CODE = (
    "__import__('os').system('id')",
    "aten::mm\nimport os; os.system('id')\n#",
    'aten::mm"""\nraise SystemExit(7)\n"""',
    "'); raise SystemExit(7) #",
    "#@calls\nraise SystemExit(7)",
    "#@head\nimport os",
    "\\",
    "\\\nimport os",
    "aten::mm::__class__",
    "aten::__getattr__",
    "torch.float32); __import__('os').abort(",
    "[1, __import__('os')]",
    "[" * 300,
    "1e999",
    "0x10",
    "1_000",
    "1j",
    "inf",
    "-nan",
    "9" * 5000,
    "{}",
    "lambda: 0",
    "aten::" + "a" * 5000,
)
TEXTS = (*CODE, *PAYLOADS.values())
OPS = (
    "aten::mm",
    "aten::addmm",
    "aten::index",
    "aten::embedding",
    "aten::to",
    "aten::copy_",
    "aten::as_strided",
    "aten::cat",
    "aten::_fused_adam_",
    "AddmmBackward0",
    "autograd::engine::evaluate_function: AddmmBackward0",
    "record_param_comms",
    "c10d::allreduce_",
    "triton_poi_fused_0",
    "my::custom.out",
    "aten::stack",
    "aten::_foreach_add_",
)
TYPES = (
    "float",
    "c10::BFloat16",
    "c10::quint8",
    "long int",
    "bool",
    "Scalar",
    "ScalarList",
    "",
)
LISTS = ("TensorList", "GenericList")
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1 << 62, 1 << 80, 0.5, [], {}, [[]], [-1], [1 << 40] * 3),
    *([[2, 3]], [[[1]]], ["x"], [None], [2.5], [2] * 80),
)
VALUES = ("", "0.", "1", "True", "[1, 1]", "[]", "-inf", "1e-05")
SEEDS_OF_GRADIENTS = 3
KEY = "fkey"
KERNEL = "triton_poi_fused_add_0"
_ODD_PATH = "../../../etc/passwd\n.py"


def trace(seed: int, number: int) -> str:
    """The text of a trace; always the same for the same numbers."""
    chance = Random(f"reproduce {seed}/{number}")
    events: list[dict[str, Any]] = []
    for place in range(chance.randint(1, 6)):
        events += _call(chance, place)
    events += _compiled()
    return json.dumps(
        {"deviceProperties": [{"id": 0, "name": _text(chance)}], "traceEvents": events}
    )


def _compiled() -> list[dict[str, Any]]:
    """A compiled graph that calls a generated kernel."""
    plain = {"ph": "X", "pid": 1, "tid": 1}
    launch = {**plain, "cat": "cuda_runtime", "name": "cudaLaunchKernel"}
    graph = f"## Call CompiledFxGraph {KEY} ##"
    same = {"correlation": 1000}
    kernel = {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "dur": 20}
    return [
        {**plain, "cat": "user_annotation", "ts": 2000, "dur": 50, "name": graph},
        {**plain, "cat": "cpu_op", "ts": 2010, "dur": 20, "name": KERNEL},
        {**launch, "ts": 2015, "dur": 5, "args": same},
        {**kernel, "ts": 2040, "name": KERNEL, "args": same},
    ]


def generated_code(seed: int, number: int) -> str:
    """The generated module of the graph, which holds hostile texts."""
    chance = Random(f"generated {seed}/{number}")
    texts = "\n".join(_text(chance) for _ in range(3))
    plain = texts.encode("utf-8", "replace").decode()  # torch writes UTF-8
    kernel = Kernel(KERNEL, (), path="/tmp/k.py")
    return f"{wrapper([kernel], '0_inference')}\n{plain}"


def write_log(code: str, path: Path) -> None:
    """A compile log with the code of the graph."""
    log = Log()
    log.record({"inductor_output_code": {"filename": _ODD_PATH}}, code)
    log.artifact("fx_graph_cache_miss", json.dumps({"key": KEY}))
    path.write_text(str(log), encoding="utf-8", newline="")


def _call(chance: Random, place: int) -> list[dict[str, Any]]:
    """An op with an op inside it and a kernel."""
    begin = 100 * place
    plain = {"ph": "X", "pid": 1, "tid": 1}
    launch = {**plain, "cat": "cuda_runtime", "name": "cudaLaunchKernel"}
    kernel = {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "dur": 20}
    same = {"correlation": place + 1}
    return [
        {**plain, "cat": "cpu_op", "ts": begin, "dur": 50, **_op(chance, place)},
        {**plain, "cat": "cpu_op", "ts": begin + 5, "dur": 30, **_op(chance, place)},
        {**launch, "ts": begin + 10, "dur": 5, "args": same},
        {**kernel, "ts": begin + 40, "name": _text(chance), "args": same},
    ]


def _op(chance: Random, place: int) -> dict[str, Any]:
    name = chance.choice(OPS) if chance.random() < 0.8 else _text(chance)
    return {"name": name, "args": _args(chance, place)}


def _args(chance: Random, place: int) -> dict[str, Any]:
    """The recorded inputs of an op, most of them as torch writes them."""
    count = chance.randint(0, 8)
    types = [_type(chance) for _ in range(count)]
    dims = [_sizes(chance, kind) for kind in types]
    args: dict[str, Any] = {
        "Input Dims": dims,
        "Input type": types,
        "Input Strides": [_strides(chance, sizes) for sizes in dims],
        "Concrete Inputs": [_value(chance) for _ in range(count)],
        "Sequence number": place % SEEDS_OF_GRADIENTS,
        "Fwd thread id": chance.randint(0, 1),
        "Collective name": _text(chance),
        "dtype": _text(chance),
        "In msg nelems": chance.choice((1024, *ODD)),
        "Group size": chance.choice((2, *ODD)),
    }
    if chance.random() < 0.1:
        args[chance.choice([*args])] = chance.choice(ODD)
    if chance.random() < 0.1:
        del args[chance.choice([*args])]
    return args


def _type(chance: Random) -> str:
    if chance.random() < 0.05:
        return _text(chance)
    return chance.choice(TYPES if chance.random() < 0.85 else LISTS)


def _sizes(chance: Random, kind: str) -> Any:
    if chance.random() < 0.05:
        return chance.choice(ODD)
    if kind in ("Scalar", "ScalarList", ""):
        return []
    sizes = [chance.choice((0, 1, 2, 64, 1000)) for _ in range(chance.randint(0, 4))]
    if kind in LISTS:  # an empty one stands for a list of more than 30 tensors
        return [] if chance.random() < 0.3 else [sizes, sizes]
    return sizes


def _strides(chance: Random, sizes: Any) -> Any:
    if chance.random() < 0.05:
        return chance.choice(ODD)
    return sizes


def _value(chance: Random) -> Any:
    share = chance.random()
    if share < 0.7:
        return chance.choice(VALUES)
    return _text(chance) if share < 0.95 else chance.choice(ODD)


def _text(chance: Random) -> str:
    return chance.choice(TEXTS)


def attempt(seed: int, number: int) -> str:
    """How many scripts were written. Raises WrongError or NotPlainError for one that
    holds code of the trace."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        path.write_text(trace(seed, number), encoding="utf-8")
        scripts = Path(folder, "scripts")
        log = Path(folder, "torch_trace.log")
        code = generated_code(seed, number)
        write_log(code, log)
        told = answer(
            [
                *("reproduce", str(path), "--top", "50", "--out", str(scripts)),
                *("--with-generated-code", "--compile-log", str(log)),
            ]
        )
        document = answer(["reproduce", str(path), "--json"])
        listed = answer(["reproduce", str(path)])
        check(listed.code == document.code, "text and JSON end differently")
        written = sorted(scripts.glob("*.py")) if told.code == DONE else []
        copies = [path for path in written if path.name.endswith(GENERATED_ENDING)]
        for copy in copies:
            check(copy.read_bytes() == code.encode(), "the copied code is another one")
        written = [path for path in written if path not in copies]
        for script in written:
            check_plain(script.read_text(encoding="utf-8"))
        count = max(len(written) - 1, 0)  # without the one that runs them
    return f"{count} scripts"


def save(seed: int, number: int, what: str, place: Path) -> Path:
    path = place.with_suffix(".json")
    path.write_text(trace(seed, number), encoding="utf-8")
    return path


KIND = Kind("reproduce", attempt, save)
