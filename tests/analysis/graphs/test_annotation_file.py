"""Files of torch.cuda.graph_annotations: plain values alone are read, and nothing is
executed."""

from __future__ import annotations

import builtins
import json
import os
import pickle
import random
import struct
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fusetui.analysis.graphs import annotation_file
from fusetui.analysis.graphs.annotation_file import read_annotations
from fusetui.trace import CannotReadError

KEY = 11 << 32 | 1
GOOD: dict[int, Any] = {
    KEY: [{"name": "layer.0", "scale": 0.5, "index": -3, "on": True, "of": None}],
    KEY + 1: {
        "name": "layer.0",
        "shape": (1, 2, 3),
        "deep": {"a": [(), [], {}, (1,), (1, 2)]},
    },
    KEY + 2: ["text", "\u00fc\U0001f600", 1 << 40, -(1 << 40), 255, 65535],
}


class Calls:
    """Pickles as a call of a function."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.asked = function, args

    def __reduce__(self) -> Any:
        return self.asked


def read(path: Path, data: bytes) -> dict[int, Any]:
    file = path / "x.pkl"
    file.write_bytes(data)
    return read_annotations(str(file))


def refused(path: Path, data: bytes) -> str:
    """The one sentence about what is no file of annotations."""
    with pytest.raises(CannotReadError) as caught:
        read(path, data)
    sentence = str(caught.value)
    assert sentence.startswith(f"{path / 'x.pkl'} ")
    assert sentence.endswith(".")
    return sentence


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_as_pickle_reads_it(tmp_path: Path, protocol: int) -> None:
    assert read(tmp_path, pickle.dumps(GOOD, protocol)) == GOOD


def test_annotations_as_json_are_read(tmp_path: Path) -> None:
    assert read(tmp_path, json.dumps({str(KEY): {"name": "a"}}).encode()) == {
        KEY: {"name": "a"}
    }


@pytest.mark.parametrize(
    "value",
    [
        Calls(os.system, "touch executed"),
        Calls(builtins.eval, "open('executed', 'w')"),
        Calls(open, "executed", "w"),
        Calls(print, "executed"),
        OrderedDict(a=1),
        {1},
        b"bytes",
        bytearray(9),
        1j,
        1 << 80,
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_pickle_of_annotations_executes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    value: object,
    protocol: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "contains no graph annotations" in refused(
        tmp_path, pickle.dumps({KEY: [value]}, protocol)
    )
    assert os.listdir(tmp_path) == ["x.pkl"]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"{",
        b"{]}",
        b"[1]",
        b'{"a": 1}',
        b"\x80\x04.",
        b"\x80\x04N.",
        b"\x80\x04]}\x94h\x00s.",  # a key that is no number
        b"\x80\x04}(KK\x01u.",  # a key without a value
        b"\x80\x04u.",
        b"\x80\x04(.",
        b"\x80\x04h\x07.",  # nothing was kept there
        b"\x80\x04r\xff\xff\xff\x7f.",
        b"cos\nsystem\n(S'true'\ntR.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"\x80\x04\x8b\xff\xff\xff\x7f.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff.",
        b"\x80\x04P0\n.",
        b"\x80\x04\x82\x01.",
        b"I" + b"9" * 5000 + b"\n.",
    ],
)
def test_files_without_annotations_are_refused(tmp_path: Path, data: bytes) -> None:
    refused(tmp_path, data)


def test_a_huge_place_in_the_memo_takes_no_memory(tmp_path: Path) -> None:
    """Python's own unpickler would make room for 2^32 places."""
    data = (
        b"\x80\x04}r"
        + struct.pack("<I", 0xFFFFFFFF)
        + b"j"
        + struct.pack("<I", 0xFFFFFFFF)
        + b"."
    )
    assert read(tmp_path, data) == {}


def test_keys_that_take_forever_to_compare(tmp_path: Path) -> None:
    """60 tuples of two of the one before: to hash the last would take 2^60 steps."""
    doubled = b"".join(
        b"\x94h" + bytes([n]) + b"h" + bytes([n]) + b"\x86" for n in range(60)
    )
    sentence = refused(tmp_path, b"\x80\x04)" + doubled + b"\x94}h\x3cNs.")
    assert "its keys are neither numbers nor strings" in sentence


def test_every_truncated_file_of_annotations_is_refused(tmp_path: Path) -> None:
    data = pickle.dumps(GOOD)
    for length in range(len(data)):
        refused(tmp_path, data[:length])


def test_mutants_are_read_or_refused(tmp_path: Path) -> None:
    dice = random.Random(7)
    for protocol in (0, 2, 5):
        data = pickle.dumps(GOOD, protocol)
        for _ in range(300):
            mutant = bytearray(data)
            for _ in range(dice.randint(1, 4)):
                mutant[dice.randrange(len(mutant))] = dice.randrange(256)
            with suppress(CannotReadError):
                assert isinstance(read(tmp_path, bytes(mutant)), dict)


def test_annotation_file_beyond_its_limits_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(annotation_file, "MAX_OPERATIONS", 10)
    assert "more than 10 steps" in refused(tmp_path, pickle.dumps(GOOD))
    monkeypatch.setattr(annotation_file, "MAX_FILE_BYTES", 10)
    assert "larger than" in refused(tmp_path, pickle.dumps(GOOD))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CannotReadError, match="cannot be read"):
        read_annotations(str(tmp_path / "none.pkl"))
