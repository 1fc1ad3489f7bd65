"""The compiled scanner: what it reads is what Python reads, and what it does not know
it leaves."""

from __future__ import annotations

import gzip
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.corpus.fixtures import any_of
from tests.trace.read.held import Held

from fusetui.trace.model.events import Stretch
from fusetui.trace.read import scanned
from fusetui.trace.read.chunks import BOUNDARY, decode_list
from fusetui.trace.read.elements import args_in
from fusetui.trace.read.gather import ChunkColumns
from fusetui.trace.read.samples import read_totals
from fusetui.trace.read.scanned import scanned as scan

pytestmark = pytest.mark.skipif(
    scanned.scan is None, reason="the scanner was not compiled"
)

KNOWN = [
    '{"ph":"X","name":"a","cat":"cpu_op","pid":1,"tid":"main","ts":1.5,"dur":2.0004}',
    '{ "ph" : "X",\n"ts" : 1712195495519689.0475, "dur": 0.0005, "args": { } }',
    '{"ph":"X","ts":0.0015,"dur":0.00250000,"args":{"correlation":-7,"external id":9}}',
    '{"ph":"X","name":"\\"q\\" \\u00e9 é","cat":"kernel","args":{"device":1,"External id":4}}',
    '{"ph":"X","args":{"External id":-4,"external id":-5}}',
    '{"ph":"X","cat":"kernel","args":{"device":4294967296,"x":[1,{"y":[]},{}],"z":-1.5e+3}}',
    '{"ph":"X","cat":"cpu_op","args":{"device":"none","name":null,"n":true}}',
    '{"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"main"}}',
    '{"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"other"}}',
    '{"ph":"s","id":1,"ts":12.5}',
    '{"ph":"s","id":-1.5e-05,"ts":12.5}',
    '{"ph":"C","ts":999999999999,"args":{"value":[]}}',
    '{"ph":"t","ts":1712195495520256.875}',  # no slice, between two floats
    '{"ph":"t","ts":1.9990}',
]
LEFT = [
    "{}",
    '{"ph":"t","ts":1.9995}',  # no slice, and Python reads the time as a float
    '{"ph":"C","ts":1712195495520256.8749}',
    '{"ph":"X","pid":-0}',  # the same process as 0
    '{"ph":"X","tid":"\\u0061"}',  # the same thread as "a"
    '{"ph":"X","ts":-1}',
    '{"ph":"X","ts":1e3}',
    '{"ph":"X","ts":"1"}',
    '{"ph":"X","ts":01}',
    '{"ph":"X","ts":1.}',
    '{"ph":"X","ts":2305843009213694}',
    '{"ph":"X","ts":2305843009213690,"dur":9}',
    '{"ph":"X","ph":"X"}',
    '{"ph":"X","\\u0074s":1}',
    '{"ph":"B","ts":1}',
    '{"ph":"","ts":1}',
    '{"ph":"X","pid":null}',
    '{"ph":"X","pid":1.5}',
    '{"ph":"X","pid":9999999999999999999}',
    '{"ph":"X","cat":"kernel","args":{"device":"1"}}',
    '{"ph":"X","args":null}',
    '{"ph":"X","args":{"correlation":"1"}}',
    '{"ph":"X","args":{"correlation":1,"correlation":2}}',
    '{"ph":"X","name":"\\ud800"}',
    '{"ph":"X","args":{"correlation":1,"device":1e1000000}}',
    '{"ph":"X","args":{"device":[1e400]}}',
    '{"ph":"X","args":{"name":-1.5}}',
    '{"ph":"i","args":{"sort_index":1e400}}',
    '{"ph":"X","args":{"labels":{"a":1e400}}}',
    '{"ph":"N","id":1e400}',
    '{"ph":"N","scope":[' + "1" * 330 + "e5]}",
    '{"ph":"X","name":"\\q"}',
    '{"ph":"X","name":"a\tb"}',
    '{"ph":"X","x":NaN}',
    '{"ph":"X","x":[1,]}',
    '{"ph":"X","x":{"a":1,}}',
    '{"ph":"X","x":[1}}',
    '{"ph":"X",}',
    '{"ph":"X"',
    '{"ph":"X"}}',
    '{"ph":"X","x":' + "[" * 65 + "]" * 65 + "}",
]


def by_python(text: bytes, monkeypatch: pytest.MonkeyPatch) -> ChunkColumns | None:
    with monkeypatch.context() as patched:
        patched.setattr(scanned, "scan", None)
        chunk = decode_list(text, 0, len(text))
    return None if chunk is None else chunk.columns


def plain(columns: ChunkColumns) -> list[Any]:
    values = (getattr(columns, name) for name in columns.__struct_fields__)
    return [[v.dtype, v.tolist()] if isinstance(v, np.ndarray) else v for v in values]


@pytest.mark.parametrize("text", KNOWN)
def test_a_scanned_event_equals_what_python_reads(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, several = text.encode(), ",\n ".join([text, *KNOWN[:2], text]).encode()
    for events in (alone, several):
        found, expected = scan(events), by_python(events, monkeypatch)
        assert found is not None
        assert expected is not None
        assert plain(found) == plain(expected)


@pytest.mark.parametrize("text", LEFT)
def test_an_event_unknown_to_the_scanner_is_left_to_python(text: str) -> None:
    assert scan(text.encode("utf-8", "surrogatepass")) is None
    assert scan(f"{KNOWN[0]},{text}".encode("utf-8", "surrogatepass")) is None


@pytest.mark.parametrize(
    "order", [KNOWN[6:8] * 2, KNOWN[6:7] * 3, KNOWN[6:9] + KNOWN[6:7]]
)
def test_labels_that_change_and_change_back(
    order: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = ",".join([*order, KNOWN[0]]).encode()
    found, expected = scan(text), by_python(text, monkeypatch)
    assert found is not None
    assert expected is not None
    assert found.labels == expected.labels


@given(st.lists(st.sampled_from(KNOWN + LEFT), min_size=1, max_size=4), st.randoms())
def test_damage_is_never_read_otherwise(
    events: list[str], chance: random.Random
) -> None:
    text = bytearray(",".join(events).encode("utf-8", "surrogatepass"))
    for _ in range(chance.randrange(3)):
        text[chance.randrange(len(text))] = chance.choice(
            b'{}[],:"\\0123.eE-x \x00\xff'
        )
    found = scan(bytes(text))
    if found is not None:
        expected = by_python(bytes(text), pytest.MonkeyPatch())
        assert expected is not None
        assert plain(found) == plain(expected)


def test_names_that_are_no_utf8() -> None:
    assert scan(b'{"ph":"X","name":"\xff"}') is None
    assert scan(b'{"ph":"s","cat":"\xff"}') is None


def test_scanner_reads_nothing_behind_the_end() -> None:
    text = KNOWN[4].encode()
    for end in range(len(text)):
        with memoryview(text)[:end] as cut:
            assert scan(cut) is None


def args(text: str, places: Sequence[int], names: tuple[str, ...]) -> Any:
    stretch = Stretch(0, len(text.encode()), text.count('"ph"'))
    found = args_in(Held(text.encode()), stretch, places, names, sequences=True)
    return found and (found[0][0].tolist(), found[0][1], found[1].tolist())


@pytest.mark.parametrize(
    "values",
    [
        ['"a":1', "", '"a":1', '"b":[ 1,2 ]', '"a":1'],
        ['"Sequence number":7,"Fwd thread id":0', '"a":"x","Sequence number":8'],
        ['"Sequence number":"7","a":1', '"Fwd thread id":3'],
        ['"a":1,"a":2', '"b":1'],
        ['"Sequence number":-1', '"b":{"a":1}'],
        ['"\\u0061":1', '"b":1'],
    ],
)
@pytest.mark.parametrize("end", ["", ", \n"])
def test_scanned_args_are_those_that_python_reads(
    values: Sequence[str], end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = ",".join(f'{{"ph":"X","args":{{{each}}}}}' for each in values) + end
    places = [0, 1, 1, len(values) - 1]
    found = args(text, places, ("a", "b"))
    monkeypatch.setattr(scanned, "scan", None)
    assert found == args(text, places, ("a", "b"))


TOTALED = [
    '"ph":"i","name":"[memory]","ts":1.5,"args":{"Device Type":1,"Total Reserved":12345678901}',
    '"args":{"Device Id":0,"Total Allocated":-4,"Device Type":0},"name":"[memory]","ph":"I"',
    '"ph":"i","name":"[memory]"',
    '"ph":"X","name":"[memory]","args":{"Total Allocated":1}',
    '"ph":"i","name":"memory","args":{"Total Allocated":1}',
    '"ph":"C","name":"a long name with a \\"quote\\", and no memory event","args":{"n":1}',
    '"ph":"i","name":"memory","ph":"X","name":"[memory]","ph":"i"',
]
ODD = [  # Python looks at them
    '"ph":"i","name":"\\u005bmemory]","args":{"Device Id":2}',
    '"ph":"i","name":"[memory]","ts":"1"',
    '"ph":"i","name":"[memory]","args":{"Device Id":1.0}',
    '"ph":"i","name":"[memory]","args":{"Device Id":null}',
    '"ph":"i","name":"[memory]","args":{"Device Id":"0"}',
    '"ph":"i","name":"[memory]","args":{"Device Id":1,"Device Id":2}',
    '"ph":"i","name":"[memory]","args":{"Total Allocated":1234567890123456789}',
    '"ph":"i","name":7',
]


@given(st.lists(st.sampled_from(TOTALED), min_size=1, max_size=6))
def test_scanned_memory_totals_are_those_that_python_reads(events: list[str]) -> None:
    text = Held(",".join(f"{{{each}}}" for each in events).encode())
    stretch = Stretch(0, len(text), len(events), samples=1)
    found = args_in(text, stretch, [], ("a",), sequences=True)
    expected = read_totals(text, stretch)
    assert found is not None
    assert found[2] is not None
    assert expected is not None
    assert np.array_equal(found[2], expected, equal_nan=True)


@pytest.mark.parametrize("event", ODD)
def test_odd_memory_events_are_left_to_python(event: str) -> None:
    text = Held(f"{{{TOTALED[0]}}},{{{event}}}".encode())
    found = args_in(
        text, Stretch(0, len(text), 2, samples=1), [], ("a",), sequences=True
    )
    assert found is not None
    assert found[2] is None


def test_args_that_cannot_be_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = tuple(f"n{number}" for number in range(40))
    assert args('{"ph":"X","args":{"n39":4}}', [0], names) == (
        [0],
        (b"\0" * 39 + b"4",),
        [],
    )


any_trace = any_of("training", "job/rank0", "lesson-mlp-eager")


def test_scanned_columns_of_traces_are_those_of_python(
    any_trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gzip.open(any_trace) as file:
        document = file.read()
    boundaries = [found.end() for found in BOUNDARY.finditer(document)]
    cuts = boundaries[:: min(5000, len(boundaries) // 4)]
    assert len(cuts) > 3
    for begin, end in pairwise(cuts):
        text = document[begin:end].rstrip(b" \n\r\t,")
        found, expected = scan(text), by_python(text, monkeypatch)
        assert (found is None) == (expected is None or b'"ph": "B"' in text)
        assert found is None or expected is None or plain(found) == plain(expected)


def test_memory_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(scanned, "_is_on_gpu", fails)
    with pytest.raises(MemoryError):
        scan(KNOWN[0].encode())


def test_without_the_scanner_python_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanned, "scan", None)
    assert scan(KNOWN[0].encode()) is None
    assert by_python(KNOWN[0].encode(), monkeypatch) is not None
