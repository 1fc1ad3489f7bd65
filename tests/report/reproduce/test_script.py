"""Scripts are plain: literals of what was recorded, in a template; hostile names and
values stay literals."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fuzz.reproduce import CODE
from tests.hostile import PAYLOADS
from tests.plain_scripts import NotPlainError, check_plain, recorded_part
from tests.recorded_ops import Event, kernel, number, op, tensor, tensors

from fusetui.analysis.reproduce.select import calls_of_kernel, calls_of_op
from fusetui.report.reproduce.literals import comment, literal, number_literal
from fusetui.report.reproduce.script import run_all_script, script_of
from fusetui.trace import Trace

TraceOf = Callable[..., Trace]


def script(trace: Trace, name: str) -> str:
    text = script_of(calls_of_op(trace, name)[0], "trace.json")
    check_plain(text)
    return text


def test_inputs_are_lines_to_edit(trace_of: TraceOf) -> None:
    embedding = op(
        "aten::embedding",
        tensor(5000, 64, type="c10::BFloat16"),
        tensor(4, 128, type="long int"),
        number("-1"),
        number("False"),
    )
    text = recorded_part(script(trace_of([embedding]), "embedding"))
    assert text.startswith(
        "def embedding_1():\n"
        "    return [\n"
        "        floats([5000, 64], torch.bfloat16, strides=[64, 1]),\n"
        "        integers([4, 128], torch.int64, strides=[128, 1], below=5000),\n"
        "        -1,\n"
        "        False,\n"
        "    ]\n"
    )


def test_what_is_not_recorded_stands_in_the_head(trace_of: TraceOf) -> None:
    events = [op("aten::cat", tensors((2, 2), (2, 2)), number("0"))]
    head = script(trace_of(events), "cat").partition("import")[0]
    assert "argument 1: the element types of a list are not recorded" in head


def test_a_list_of_tensors_has_a_line_for_each(trace_of: TraceOf) -> None:
    events = [op("aten::cat", tensors((20, 20), (20, 20)), number("0"))]
    text = script(trace_of(events), "cat")
    line = "            floats([20, 20], torch.float32, strides=[20, 1]),\n"
    assert text.count(line) == 2


@pytest.mark.parametrize("text", [*CODE, *PAYLOADS.values()])
def test_hostile_texts_stay_literals(trace_of: TraceOf, text: str) -> None:
    events: list[Event] = [
        op("aten::mm", tensor(2, 2), tensor(2, 2), number(text)),
        *kernel(text, 1, 1),
        *kernel(f"k{text}", 50, 2),
    ]
    trace = trace_of(events, deviceProperties=[{"id": 0, "name": text}])
    script(trace, "mm")
    for name in (text, f"k{text}"):
        if name in trace.names:
            check_plain(script_of(calls_of_kernel(trace, name)[0], text))


@pytest.mark.parametrize("code", ["import os", "x = open('a')", "CALLS = [id()]"])
def test_the_check_itself_finds_code(trace_of: TraceOf, code: str) -> None:
    text = script(trace_of([op("aten::relu", tensor(2))]), "relu")
    with pytest.raises(NotPlainError):
        check_plain(text.replace("CALLS = [", f"{code}\nCALLS = [", 1))


def test_the_script_that_runs_a_folder_is_plain() -> None:
    text = run_all_script(["01_aten_mm.py"], 'a"""\nimport os')
    check_plain(text)
    assert 'SCRIPTS = [\n    "01_aten_mm.py",\n]' in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.", "0.0"),
        ("1e-05", "1e-05"),
        ("-inf", "-math.inf"),
        ("nan", "math.nan"),
        ("007", "7"),
        ("True", "True"),
    ],
)
def test_numbers(text: str, expected: str) -> None:
    assert number_literal(text) == expected


def test_literals() -> None:
    value: list[object] = [None, True, -1, 0.5, 'it\'s "a"\n', "plain", (1, [])]
    text = literal(value)
    assert eval(text) == [None, True, -1, 0.5, 'it\'s "a"\n', "plain", [1, []]]
    assert '"plain"' in text
    with pytest.raises(TypeError):
        literal({})


def test_a_comment_is_one_line() -> None:
    assert comment("a\nimport os\r\x0cb\u2028c").count("\n") == 0
