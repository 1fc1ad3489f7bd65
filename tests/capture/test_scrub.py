"""What scrubbing takes out of a trace, and what it leaves."""

import json
import re

import pytest

from fusetui.capture.scrub import scrub, set_trace_name

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
TRACE = """{"host_name": "box-17.lab", "username": "ada",
 "traceEvents": [{"name": "torch/nn.py(3): f", "ts": 4365912618404.960, "dur": 7.50,
  "args": {"file": "/home/ada/my work/train.py", "n": 12345678901234567890}}],
 "traceName": "/home/ada/out.json"}"""


def in_string(name: str) -> str:
    """A name after scrubbing, as it stands in the JSON text."""
    return str(json.loads(scrub(json.dumps({"name": name}), "t.json"))["name"])


def test_no_private_word_is_left() -> None:
    assert not re.search("ada|box|home|my work", scrub(TRACE, "t.json"))


def test_every_number_keeps_its_digits() -> None:
    assert NUMBER.findall(scrub(TRACE, "t.json"))[:5] == [
        "3", "4365912618404.960", "7.50", "12345678901234567890"
    ]  # fmt: skip


def test_the_result_is_json_with_the_given_name() -> None:
    assert json.loads(scrub(TRACE, "mlp.json"))["traceName"] == "mlp.json"


@pytest.mark.parametrize(
    ("name", "scrubbed"),
    [
        ("/usr/lib/python3.11/site-packages/torch/nn/a.py(1): f", "torch/nn/a.py(1): f"),
        ("/opt/py/lib/python3.11/threading.py(9): run", "threading.py(9): run"),
        ("/tmp/torchinductor_ada/xy/cxy.py", "cxy.py"),
        ("</home/ada/a.py:3>", "<a.py:3>"),
        ("a\n/home/ada/b.py", "a\nb.py"),
        ("C:\\Users\\ada\\train.py", "train.py"),
        ("file:///home/ada/x", "file://x"),
        ("/home/ada", "~"),
    ],
)
def test_absolute_paths_are_shortened(name: str, scrubbed: str) -> None:
    assert in_string(name) == scrubbed


@pytest.mark.parametrize(
    "name",
    [
        "Torch-Compiled Region: 0/0",
        "void at::native::kernel<4, float>(int, std::array<char*, 1ul>)",
        "a / b",
        "https://pytorch.org/docs/stable",
        "torch/nn/modules/linear.py(125): forward",
    ],
)
def test_other_names_stay(name: str) -> None:
    assert in_string(name) == name


def test_a_trace_name_is_replaced_alone() -> None:
    assert set_trace_name('{"a": "/x/y", "traceName": "/x/z"}', "t") == (
        '{"a": "/x/y", "traceName": "t"}'
    )
