"""What `convert`, `cut` and `scrub` write of damaged or odd files is JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from tests.cases import Cases

from fusetui.trace import open_trace
from fusetui.trace.convert import convert_file
from fusetui.trace.cut import part_of, texts_of
from fusetui.trace.scrub.document import save, scrub_file
from fusetui.trace.scrub.values import parse, write

INSERTED = (
    b"\\",
    b'"',
    b"\xff",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"\x01",
    b"\\ud800",
    b"NaN",
    b"-inf",
)
DEEP = 900  # levels


def cut_file(path: str, out: str) -> None:
    trace = open_trace(path, cached=False)
    save(out, texts_of(trace, part_of(trace, trace.begin_ns, trace.end_ns), {}))


WRITERS: dict[str, Callable[[str, str], object]] = {
    "convert": convert_file,
    "cut": cut_file,
    "scrub": scrub_file,
}


@pytest.fixture(params=WRITERS)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[bytes], bytes]:
    writer = WRITERS[request.param]
    numbers = iter(range(1000))

    def write_again(content: bytes) -> bytes:
        number = next(numbers)
        path, out = tmp_path / f"a{number}.json", tmp_path / f"b{number}.json"
        path.write_bytes(content)
        writer(str(path), str(out))
        found = out.read_bytes()
        json.loads(found.decode())
        return found

    return write_again


def event(number: int, **more: object) -> dict[str, object]:
    times = {"ts": number * 10, "dur": 5.5}
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        "pid": 1,
        "tid": 1,
        **times,
        **more,
    }


def document(*events: dict[str, object], keys: str = "") -> bytes:
    return f'{{{keys}"traceEvents": {json.dumps(events)}}}'.encode()


def test_json_written_of_randomly_damaged_documents_is_valid(
    written: Callable[[bytes], bytes],
) -> None:
    with Cases() as cases:
        for seed in range(40):
            with cases.case(seed):
                written(damaged_document(Random(seed)))


def damaged_document(rnd: Random) -> bytes:
    """A document of 40 events with one, three or ten damaged places in its middle."""
    events = [
        event(n, args={"shape": [[n, 2], []], "name": "forward"}) for n in range(40)
    ]
    damaged = bytearray(document(*events))
    for _ in range(rnd.choice((1, 3, 10))):
        at = rnd.randrange(len(damaged) // 4, len(damaged) * 3 // 4)
        if rnd.random() < 0.5:
            damaged[at] = rnd.randrange(256)
        else:
            damaged[at:at] = rnd.choice(INSERTED)
    return bytes(damaged)


@pytest.mark.parametrize("brackets", ["[]", ("{", "}")])
def test_json_written_of_a_deep_key_is_valid(
    written: Callable[[bytes], bytes], brackets: tuple[str, str]
) -> None:
    opening = brackets[0] + '"a":' * (brackets[0] == "{")
    deep = f"{opening * DEEP}1{brackets[1] * DEEP}"
    written(document(event(0), event(1), keys=f'"k": {deep}, '))


def test_json_written_of_lone_surrogates_is_valid(
    written: Callable[[bytes], bytes],
) -> None:
    odd = event(0, name="aten::mm \ud800", args={"a": "\ud800", "\udfff": 1})
    found = written(document(odd, event(1), event(2, dur="7", args={"a": "\ud800"})))
    assert b"aten::mm" in found


def test_json_written_of_nan_and_infinity_is_valid(
    written: Callable[[bytes], bytes],
) -> None:
    content = document(event(0, args={"a": 1}), event(1)).replace(
        b'"a": 1', b'"a": 1e9999, "b": NaN'
    )
    assert b"Infinity" not in written(content)


def test_converting_a_whole_json_trace_changes_no_value(tmp_path: Path) -> None:
    content = document(
        event(0, args={"a": [1, 2.50, "\u00e9"]}), event(1), keys='"k": 1.50, '
    )
    path, out = tmp_path / "a.json", tmp_path / "b.json"
    path.write_bytes(content)
    convert_file(str(path), str(out))
    assert json.loads(out.read_bytes()) == json.loads(content)


def test_a_value_is_written_as_it_was_read() -> None:
    text = '{"a": [], "b": {}, "c": [1.50, -0, "x\\"y", null, true, [[2]]], "c": {"d": 1e400}}'
    assert write(parse(text.encode())) == text


def test_json_written_of_an_event_with_a_bracket_too_many_is_valid(
    written: Callable[[bytes], bytes],
) -> None:
    events = [event(n, args={"External id": n, "Ev Idx": n}) for n in range(30)]
    content = json.dumps({"traceEvents": events}, indent=2)
    opened = '"args": {\n        "External id": 20,'
    assert opened in content
    found = json.loads(written(content.replace(opened, '"aid": 20,').encode()))
    assert len(found["traceEvents"]) >= 28


def test_json_written_of_a_surrogate_in_a_time_is_valid(
    written: Callable[[bytes], bytes],
) -> None:
    instant = {"ph": "i", "name": "a", "pid": 1, "tid": 1, "s": "t", "ts": "\ud800"}
    found = written(
        document(event(0, dur="7"), instant, event(1, args={"a": "\ud800"}))
    )
    assert b"aten::mm" in found
