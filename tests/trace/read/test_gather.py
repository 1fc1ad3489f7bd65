"""Decoded events -> columns of one chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fusetui.trace.model.events import EVERYWHERE, NOWHERE
from fusetui.trace.read.batch import event_in
from fusetui.trace.read.events import decode_events, decode_exact
from fusetui.trace.read.gather import Interner, gather
from fusetui.trace.read.times import InexactTimesError


def test_interner_numbers_distinct_keys_in_their_order() -> None:
    table = Interner()
    assert table.ids(["b", "a", "b"]).tolist() == [0, 1, 0]
    assert list(table) == ["b", "a"]


def test_gathered_events_become_columns_with_labels_and_phases() -> None:
    columns = gather(
        decode_events(
            b'[{"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"main"}},'
            b'{"ph":"X","name":"a","cat":"c","pid":1,"tid":2,"ts":1.5,"dur":2},'
            b'{"ph":"s","id":1},'
            b'{"ph":"X","name":"a","pid":"x","ts":3,"args":{"External id":7,"correlation":9}}]'
        )
    )
    assert columns.phases == {"M": 1, "X": 2, "s": 1}
    assert columns.order.tolist() == [1, 3]
    assert columns.start.tolist() == [1500, 3000]
    assert columns.dur.tolist() == [2000, 0]
    assert (columns.names, columns.categories) == (("a",), ("c", ""))
    assert columns.threads == ((1, 2, None), ("x", None, None))
    assert columns.correlation.tolist() == [-1, 9]
    assert columns.external_id.tolist() == [-1, 7]
    assert [(label.kind, label.value) for label in columns.labels] == [
        ("thread_name", "main")
    ]


def test_absolute_times_need_their_text() -> None:
    text = b'[{"ph":"X","ts":1712195495519689.047,"dur":1.25}]'
    with pytest.raises(InexactTimesError):
        gather(decode_events(text))
    assert gather(decode_exact(text)).start.tolist() == [1712195495519689047]


def test_ids_that_do_not_fit() -> None:
    text = b'[{"ph":"X","args":{"correlation":18446744073709551615}},{"ph":"X"}]'
    assert gather(decode_events(text)).correlation.tolist() == [-1, -1]


@pytest.mark.parametrize(
    "text", [b"17", b"null", b"[]", b'{"name":"x"}', b'{"ph":"X","ts":"soon"}']
)
def test_values_that_are_no_events_are_not_decoded(text: bytes) -> None:
    assert event_in(text) is None


@pytest.mark.parametrize("decode", [decode_events, decode_exact])
@pytest.mark.parametrize(
    ("others", "reach"),
    [
        (b'{"ph":"C","ts":15.5},{"ph":"i","ts":12}', (10_000, 17_000)),
        (b'{"ph":"C","ts":-15.5}', (-17_000, -13_000)),
        (b'{"ph":"C","ts":15.9995}', (14_000, 18_000)),
        (b'{"ph":"M","name":"process_name"},{"ph":"C","ts":15}', EVERYWHERE),
        (b'{"ph":"C","ts":1e300}', EVERYWHERE),
        (b'{"ph":"X","name":"b","ts":5}', NOWHERE),
    ],
)
def test_times_of_events_that_are_no_slices_widen_the_reach(
    decode: Callable[[bytes], Any], others: bytes, reach: tuple[int, int]
) -> None:
    events = decode(b'[{"ph":"X","name":"a","ts":99},' + others + b"]")
    assert gather(events).reach == reach


@pytest.mark.parametrize(
    "event", [b'{"ph":"C","ts":"15"}', b'{"ph":"b","id":1,"ts":5}']
)
def test_times_in_quotes_and_pairs_may_be_any(event: bytes) -> None:
    assert gather(decode_exact(b"[%b]" % event)).reach == EVERYWHERE
