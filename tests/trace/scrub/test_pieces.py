"""A long list is divided into pieces that are JSON on their own; nothing is lost or
read twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from tempfile import TemporaryFile
from typing import Any

import pytest

from fusetui.trace.read import damaged
from fusetui.trace.read.document import Document
from fusetui.trace.scrub.events import EventCutter, elements_of

INNER = {"a": [{"b": 1}, {"c": [{}, {}]}], "text": '"}, {"ph": \\'}
EVENTS = [{"ph": "X", "name": f"f{n}", "args": {"n": n, **INNER}} for n in range(200)]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document of some kB is treated like one of some hundred MB."""
    monkeypatch.setattr(damaged, "WINDOW_BYTES", 1 << 11)
    monkeypatch.setattr(damaged, "WINDOW_BYTES_AFTER_DAMAGE", 1 << 7)


def read(text: str) -> tuple[list[Any], list[tuple[int, str]], int]:
    """The events of all pieces, what was lost, and where the list ended."""
    data = text.encode()
    with TemporaryFile(buffering=0) as file:
        file.write(data)
        return pieces_of(Document(file.fileno(), len(data)), data.index(b"[") + 1)


def pieces_of(
    document: Document, start: int
) -> tuple[list[Any], list[tuple[int, str]], int]:
    cut = EventCutter(document, start)
    found: list[Any] = []
    for piece in cut.pieces():
        whole = document[piece.start : piece.end]
        elements = [whole] if piece.places is None else elements_of(document, piece)
        events = [event for text in elements for event in json.loads(b"[%b]" % text)]
        assert len(events) == piece.events
        found += events
    return found, cut.lost, cut.after


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize(
    "tail", [', "other": [{"ph": "no"}, {"ph": "event"}]}', "}", ""]
)
def test_every_event_is_in_one_piece(indent: int | None, tail: str) -> None:
    text = f'{{"traceEvents": {json.dumps(EVENTS, indent=indent)}{tail}'
    found, lost, after = read(text)
    assert found == EVENTS
    assert lost == []
    assert text[after:] == tail


def test_the_end_may_be_missing() -> None:
    text = json.dumps(EVENTS)[:-1]
    assert read(text) == (EVENTS, [], -1)


@pytest.mark.parametrize("number", [0, 1, 57, 199])
def test_a_damaged_event_is_the_only_one_that_is_lost(number: int) -> None:
    lines = [json.dumps(event) for event in EVENTS]
    lines[number] = lines[number].replace('"name":', '"name"')
    found, lost, _ = read("[" + ",\n".join(lines) + "]")
    assert found == [event for n, event in enumerate(EVENTS) if n != number]
    assert len(lost) == 1


def test_a_huge_event_is_a_piece() -> None:
    events = [*EVENTS[:3], {"ph": "X", "name": "a" * 20_000}, *EVENTS[3:6]]
    assert read(json.dumps(events))[0] == events


def test_a_document_of_many_pieces_is_scrubbed_as_one(
    scrub: Callable[..., str],
) -> None:
    events = [
        {"ph": "X", "name": f"/home/ada/{n % 7}/x.py", "args": INNER}
        for n in range(300)
    ]
    events[250]["args"] = {"user": "adal", "n": 1}
    found = json.loads(scrub({"traceEvents": events}))["traceEvents"]
    assert [e["name"] for e in found] == [f"dir{n % 7 + 1}/x.py" for n in range(300)]
    assert found[250]["args"] == {"user": "<user2>", "n": 1}
    assert all(e["args"] == INNER for n, e in enumerate(found) if n != 250)


def test_empty_list_of_events_is_scrubbed(scrub: Callable[..., str]) -> None:
    assert json.loads(scrub('{"traceEvents": [ ]}')) == {"traceEvents": []}


def test_a_first_event_with_args_that_are_no_utf_8_is_kept() -> None:
    events = [
        b'{"ph": "X", "name": "a", "ts": 1, "args": {"co\xb9": 2}}',
        b'{"ph": "X"}',
    ]
    data = b'{"traceEvents": [\n%b]}' % b",".join(events)
    with TemporaryFile(buffering=0) as file:
        file.write(data)
        document = Document(file.fileno(), len(data))
        pieces = list(EventCutter(document, data.index(b"[") + 1).pieces())
        assert [
            text for piece in pieces for text in elements_of(document, piece)
        ] == events
