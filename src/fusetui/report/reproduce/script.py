"""The text of a script that reproduces calls: the recorded data, in a fixed
template."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fusetui.analysis.reproduce.generated import WHOLE_GRAPH, GeneratedCode
from fusetui.analysis.reproduce.model import (
    Argument,
    Call,
    CallKind,
    DeviceArgument,
    Filling,
    NothingArgument,
    NumberArgument,
    NumbersArgument,
    RecordedInputs,
    ScalarTensorArgument,
    TensorArgument,
    TensorsArgument,
)
from fusetui.report.reproduce.literals import (
    comment,
    keyword_lines,
    list_lines,
    literal,
    number_literal,
)
from fusetui.report.reproduce.wording import (
    NEVER_RECORDED,
    inputs_text,
    name_of,
    recorded_text,
    remark_texts,
    why_not,
)

TEMPLATES = Path(__file__).parent
HEAD = "#@head\n"
CALLS = "#@calls\n"
MEASURING = "#@measuring\n"

FUNCTIONS = {
    Filling.NORMAL: "floats",
    Filling.POSITIVE: "floats",
    Filling.INTEGERS: "integers",
    Filling.FLAGS: "flags",
    Filling.OFFSETS: "offsets",
    Filling.QUANTIZED: "quantized",
}
"""The function of the template that makes a tensor of these values."""

PYTHON_NUMBERS = {"float64": "1.5", "int64": "2", "complex128": "1j"}
WHOLE_TYPES = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")
PLAIN_TYPES = ("", "Scalar", "ScalarList")
"""Recorded types of what is no tensor."""

INDENT = "        "
GENERATED_ENDING = "_generated.py"
"""Of the name of the copied code, which begins as that of its script."""


class ScriptSource(NamedTuple):
    """What a script is made of: `order` has the index of a call for each time that it
    is made, `title` is the first line."""

    title: str
    calls: Sequence[Call]
    order: Sequence[int]


def generated_path(script_path: str) -> str:
    """Where the generated code of a script lies: a name of ours, and none of the
    log."""
    return f"{os.path.splitext(script_path)[0]}{GENERATED_ENDING}"


@cache
def template(name: str) -> str:
    """The text of a template, with what several of them have in common."""
    text = (TEMPLATES / f"{name}.txt").read_text(encoding="utf-8")
    if MEASURING not in text:
        return text
    return text.replace(MEASURING, template("measuring"))


def script_of(call: Call, trace_name: str) -> str:
    """The script of one call, of any kind."""
    title = f"{name_of(call)}, as recorded in {trace_name} (row {call.row})"
    if call.kind in (CallKind.OP, CallKind.BACKWARD):
        return script(ScriptSource(title=title, calls=[call], order=[0]))
    if call.kind is CallKind.COLLECTIVE:
        return collective_script(call, title)
    return explaining_script(call, title)


def script(source: ScriptSource) -> str:
    """The script of calls of ops and of backward nodes; others are named in it, with
    the reason why they are left out."""
    numbers: dict[int, int] = {}  # of the calls that can be made, their number in CALLS
    for number, call in enumerate(source.calls):
        if call.kind in (CallKind.OP, CallKind.BACKWARD):
            numbers[number] = len(numbers)
    made = [source.calls[number] for number in numbers]
    order = [numbers[number] for number in source.order if number in numbers]
    lines: list[str] = []
    names = [_function_name(call, number) for number, call in enumerate(made, 1)]
    for call, name in zip(made, names, strict=True):
        lines += _input_functions(call, name)
    lines.append("CALLS = [")
    for call, name in zip(made, names, strict=True):
        lines += _entry(call, name)
    lines.append("]")
    lines.append(f"ORDER = {literal(order)}")
    text = "\n".join(lines)
    return _filled("op", _head(source, made), text)


def collective_script(call: Call, title: str) -> str:
    """The script of a collective of torch.distributed, on several processes of one
    machine."""
    facts = call.collective
    assert facts is not None
    lines = [
        f"COLLECTIVE = {literal(facts.name)}",
        f"DTYPE = {literal(facts.dtype)}",
        f"IN_ELEMENTS = {literal(facts.in_elements)}",
        f"OUT_ELEMENTS = {literal(facts.out_elements)}",
        f"RECORDED_RANKS = {literal(facts.ranks)}",
        f"RECORDED_DEVICE = {literal(call.device)}",
        f"RECORDED_US = {literal(call.median_ns / 1e3)}",
    ]
    head = [comment(title), "#", comment(recorded_text(call))]
    return _filled("collective", head, "\n".join(lines))


def generated_script(call: Call, generated: GeneratedCode, trace_name: str) -> str:
    """The script that runs a kernel of a generated module, which lies beside it under
    the name of `generated_path`."""
    title = f"{name_of(call)}, as recorded in {trace_name} (row {call.row})"
    lines = [
        f"NAME = {literal(generated.name)}",
        f"NUMBERS = {literal(generated.numbers)}",
        f"SHAPES = {literal(_shapes_of_kernel(call, generated))}",
        f"RECORDED_DEVICE = {literal(call.device)}",
        f"RECORDED_US = {literal(call.median_ns / 1e3)}",
        f"DIGEST = {literal(hashlib.sha256(generated.code).hexdigest())}",
    ]
    head = [comment(title), "#", comment(recorded_text(call))]
    head.append(comment(f"Generated by torch.compile, copied from {generated.log}."))
    return _filled("generated", head, "\n".join(lines))


def _shapes_of_kernel(call: Call, generated: GeneratedCode) -> list[object] | None:
    """The recorded shapes of the tensors that a kernel was given; None if they were not
    recorded, or the whole graph runs."""
    recorded = call.recorded
    shapes = []
    for dims, kind in zip(recorded.dims, recorded.types, strict=True):
        if kind not in PLAIN_TYPES:
            shapes.append(dims)
    return None if generated.name == WHOLE_GRAPH else shapes or None


def explaining_script(call: Call, title: str) -> str:
    """A script that only says why a call cannot be made again, and what to record."""
    reason = why_not(call)
    head = [comment(title), "#", comment(recorded_text(call)), "#"]
    head.append(comment(f"It cannot be reproduced: {reason}."))
    for kernel in dict.fromkeys(call.kernels):  # each name once
        head.append(comment(f"Kernel: {kernel}"))
    name = "compiled" if call.kind is CallKind.COMPILED else "refused"
    return _filled(name, head, f"REASON = {literal(reason)}")


def _filled(name: str, head: Sequence[str], calls: str) -> str:
    """A template with its two recorded parts. They are put between pieces of the
    template, so nothing in them can be taken for a marker."""
    before, after_head = template(name).split(HEAD)
    between, rest = after_head.split(CALLS)
    head_text = "\n".join(head) + "\n"
    return f"{before}{head_text}{between}{calls}\n{rest}"


def _head(source: ScriptSource, made: Sequence[Call]) -> list[str]:
    """The comments at the head of a script."""
    lines = [comment(source.title), "#"]
    for call in made:
        inputs = inputs_text(call)
        lines.append(comment(f"{name_of(call)}: {recorded_text(call)}; {inputs}"))
        lines += [comment(f"  {text}") for text in remark_texts(call.remarks)]
    for call in source.calls:
        if call not in made:
            lines.append(comment(f"Skipped: {name_of(call)}: {why_not(call)}."))
    lines += ["#", comment(NEVER_RECORDED)]
    return lines


def _function_name(call: Call, number: int) -> str:
    """A name for the function that makes the inputs of a call: op names consist of
    letters, digits and underscores (OP_NAME)."""
    op = call.op.partition("::")[2].partition(".")[0]
    return f"{op}_{number}"


def _input_functions(call: Call, name: str) -> Iterator[str]:
    """The function that makes the inputs of a call, and for a backward node that of its
    gradients."""
    yield f"def {name}():"
    yield "    return ["
    for argument in call.arguments:
        yield f"{INDENT}{argument_text(argument)},"
    yield "    ]"
    yield ""
    yield ""
    if call.kind is CallKind.BACKWARD:
        yield f"def {name}_gradients():"
        yield "    return ["
        for gradient in call.gradients:
            yield f"{INDENT}{tensor_text(gradient)},"
        yield "    ]"
        yield ""
        yield ""


def _entry(call: Call, name: str) -> Iterator[str]:
    """The entry of a call in CALLS."""
    is_backward = call.kind is CallKind.BACKWARD
    recorded = call.node_recorded if is_backward else call.recorded
    attainable_ns = call.cost.attainable_ns
    yield "    {"
    yield keyword_lines("op", literal(call.op), INDENT)
    yield keyword_lines("inputs", name, INDENT)
    if is_backward:
        yield keyword_lines("node", literal(call.node), INDENT)
        yield keyword_lines("gradients", f"{name}_gradients", INDENT)
    yield keyword_lines("device", literal(call.device), INDENT)
    yield keyword_lines("us", literal(call.median_ns / 1e3), INDENT)
    yield keyword_lines("flop", literal(call.cost.flop), INDENT)
    yield keyword_lines("bytes", literal(call.cost.bytes), INDENT)
    attainable_us = None if attainable_ns is None else round(attainable_ns / 1e3, 3)
    yield keyword_lines("attainable_us", literal(attainable_us), INDENT)
    yield from _recorded_lines(recorded)
    inner = [literal([op.name, op.dims, op.parent]) for op in call.inner]
    yield from _keyword_list("inner", inner)
    yield from _keyword_list("kernels", map(literal, call.kernels))
    yield "    },"


def _recorded_lines(recorded: RecordedInputs) -> Iterator[str]:
    """The lines of an entry that say what was recorded of the inputs, with which the
    script compares its own profile."""
    yield from _keyword_list("dims", map(literal, recorded.dims))
    yield from _keyword_list("types", map(literal, recorded.types))
    if recorded.strides is None:
        yield keyword_lines("strides", "None", INDENT)
    else:
        yield from _keyword_list("strides", map(literal, recorded.strides))


def _keyword_list(name: str, items: Iterator[str] | Sequence[str]) -> Iterator[str]:
    """The lines of a list in an entry; `items` are expressions."""
    lines = list_lines(items, INDENT)
    lines[-1] += ","
    yield f'{INDENT}"{name}": {lines[0]}'
    yield from lines[1:]


def argument_text(argument: Argument) -> str:
    """The expression of an argument."""
    return EXPRESSIONS[type(argument)](argument)


def tensor_text(tensor: TensorArgument) -> str:
    """`floats([64, 768], torch.float32, strides=[768, 1])`."""
    function = FUNCTIONS[tensor.filling]
    words = [literal(tensor.shape)]
    is_whole = tensor.dtype in WHOLE_TYPES
    if tensor.filling is Filling.POSITIVE and is_whole:
        function = "integers"
    words += _dtype_words(tensor)
    if tensor.strides is not None:
        words.append(f"strides={literal(tensor.strides)}")
    if tensor.filling is Filling.POSITIVE:
        words.append("low=1, below=3" if is_whole else "positive=True")
    if tensor.filling is Filling.OFFSETS:
        words.append(f"end={literal(tensor.below)}")
    elif tensor.below is not None:
        words.append(f"below={literal(tensor.below)}")
    if tensor.needs_grad:
        words.append("grad=True")
    if tensor.device:
        words.append(f"memory={literal(tensor.device)}")
    if tensor.storage is not None:
        words.append(f"elements={literal(tensor.storage)}")
    return f"{function}({', '.join(words)})"


def _dtype_words(tensor: TensorArgument) -> list[str]:
    """The word for the element type: a text for a quantized one, which a later torch
    may not have."""
    if tensor.filling is Filling.FLAGS:
        return []
    if tensor.filling is Filling.QUANTIZED:
        return [literal(tensor.dtype)]
    return [f"torch.{tensor.dtype}"]


def _tensors_text(argument: TensorsArgument) -> str:
    texts = [
        "None" if tensor is None else tensor_text(tensor) for tensor in argument.tensors
    ]
    return "\n".join(list_lines(texts, INDENT))


def _device_text(argument: DeviceArgument) -> str:
    return f"Device({literal(argument.name) if argument.name else ''})"


EXPRESSIONS: dict[type, Callable[..., str]] = {
    TensorArgument: tensor_text,
    TensorsArgument: _tensors_text,
    NumberArgument: lambda argument: number_literal(argument.text),
    NumbersArgument: lambda argument: (
        f"[{', '.join(map(number_literal, argument.texts))}]"
    ),
    ScalarTensorArgument: lambda argument: (
        f"PythonNumber({PYTHON_NUMBERS[argument.dtype]})"
    ),
    NothingArgument: lambda argument: "None",
    DeviceArgument: _device_text,
}
"""How each kind of argument is written."""


RUN_ALL = "run_all.py"


def run_all_script(files: Sequence[str], trace_name: str) -> str:
    """The script that runs those of a folder. `files` are names that `file_name`
    made."""
    lines = ["SCRIPTS = [", *(f"    {literal(name)}," for name in files), "]"]
    title = f"The most expensive calls of {trace_name}"
    return _filled("run_all", [comment(title)], "\n".join(lines))
