"""Times that floats cannot hold, by their digits in the text: exact, or not at all."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetui.trace.read.chunks import PIECE_BYTES, decode_list
from fusetui.trace.read.events import decode_events
from fusetui.trace.read.times import InexactTimesError, by_digits

BASE = "1712195495519689"


def read(text: str) -> list[int]:
    listed = f"[{text}]".encode()
    return list(by_digits(listed, b'"ts":', [e.ts for e in decode_events(listed)]))


@given(
    st.lists(
        st.decimals(min_value=0, max_value=2 * 10**15, places=4)
        | st.decimals(min_value=0, max_value=10**6, places=12)
        | st.floats(min_value=-1e6, max_value=1e15)
        | st.integers(min_value=0, max_value=2 * 10**15),
        min_size=1,
        max_size=9,
    )
)
def test_times_by_their_digits_are_those_of_decimals(values: list[float]) -> None:
    text = ", ".join(
        f'{{"ts":{" " * (n % 2)}{value}}}' for n, value in enumerate(values)
    )
    exact = [int((Decimal(str(value)) * 1000).to_integral_value()) for value in values]
    assert read(text) == exact


@pytest.mark.parametrize(
    "text",
    [
        '{"args":{"ts":%(b)s.5},"ts":%(b)s.501},{"name":"y"}',  # too few, and too many
        '{"args":{"ts":%(b)s.5},"ts":%(b)s.501}',
        '{"ts" :%(b)s.5,"args":{"ts":%(b)s.501}}',
        r'{"\u0074s":%(b)s.5,"args":{"ts":%(b)s.501}}',
        '{"ts":%(b)s.5},{"name":"y","args":{"ts":0.4}}',
    ],
)
def test_a_key_that_may_be_another_is_not_believed(text: str) -> None:
    with pytest.raises(InexactTimesError):
        read(text % {"b": BASE})


def test_text_that_only_looks_like_the_ts_key_is_skipped() -> None:
    other = '{"name":"y","args":{"ts":0.0}}'
    assert read('{"name":"ts","cat":"a\\"ts\\":1","ts":5.25},' + other) == [5250, 0]


def test_times_of_events_in_several_pieces_are_exact() -> None:
    """The first piece ends inside the args of an event, the others are only long; each
    is exact."""
    trap = '{"ph":"X","args":{"inner":[{"z":"%s"},{"name":1}]},"ts":1.5}' % (
        "." * PIECE_BYTES
    )
    long = '{"ph":"X","name":"%d","args":{"z":"%s"},"ts":%s.%03d}'
    rest = [long % (n, "." * (n % 3 * PIECE_BYTES // 2), BASE, n) for n in range(40)]
    for events in ([trap, *rest], rest):
        text = ", ".join(events).encode()
        chunk = decode_list(text, 0, len(text))
        assert chunk is not None
        times = [1500][: len(events) - 40] + [int(f"{BASE}{n:03}") for n in range(40)]
        assert chunk.columns.start.tolist() == times
        assert chunk.columns.order.tolist() == list(range(len(events)))
        assert chunk.columns.names[-40:] == tuple(str(n) for n in range(40))


def test_repeated_labels_are_kept_once() -> None:
    label = '{"ph":"M","name":"thread_name","pid":1,"tid":%d,"args":{"name":"%s"}}'
    said = [(1, "a"), (2, "a"), (1, "a"), (1, "b"), (1, "a"), (2, "a")]
    text = ",".join(label % one for one in said).encode()
    chunk = decode_list(text, 0, len(text))
    assert chunk is not None
    assert chunk.events == 6
    kept = [(found.tid, found.value) for found in chunk.columns.labels]
    assert kept == [(1, "a"), (2, "a"), (1, "b"), (1, "a")]
