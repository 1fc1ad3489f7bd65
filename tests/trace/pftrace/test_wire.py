"""The wire format in bulk, beside a plain decoder."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pftraces import message, packet, varint

from fusetui.trace.pftrace.wire import (
    BYTES,
    FIXED64,
    MAX_FIELDS,
    VARINT,
    decoded,
    fields,
    find_packets,
    varints,
    words_of,
)

WHOLE = st.integers(0, (1 << 64) - 1)
VALUE = WHOLE | st.binary(max_size=300) | st.floats(allow_nan=False)
FIELD = st.tuples(st.integers(1, 3000), VALUE)


@given(
    st.lists(
        WHOLE | st.sampled_from([0, 127, 128, (1 << 56) - 1, 1 << 56, 1 << 63]),
        min_size=1,
    )
)
def test_varints_of_any_length_are_decoded(numbers: list[int]) -> None:
    texts = [varint(number) for number in numbers]
    at = np.cumsum([0, *map(len, texts)])[:-1]
    found, size = varints(words_of(b"".join(texts)), at)
    assert found.astype(np.uint64).tolist() == numbers
    assert size.tolist() == [*map(len, texts)]


def test_a_number_that_is_longer_than_it_must_be() -> None:
    found, size = varints(words_of(b"\xdb\x81\x80\x00"), np.array([0]))
    assert (found.tolist(), size.tolist()) == ([219], [4])


def test_eleven_bytes_are_no_number() -> None:
    assert varints(words_of(b"\xff" * 11), np.array([0]))[1].tolist() == [0]
    with pytest.raises(ValueError, match="without an end"):
        [*decoded(b"\x08" + b"\xff" * 11)]


@given(st.lists(st.lists(FIELD, max_size=6), max_size=6))
def test_fields_of_many_messages_equal_a_plain_decoder(
    contents: list[list[tuple[int, int | bytes | float]]],
) -> None:
    texts = [message(content) for content in contents]
    end = np.cumsum([0, *map(len, texts)])
    data = b"".join(texts)
    number = next((n for content in contents for n, _ in content), 1)
    single, several = {number: VARINT, 3001: BYTES}, {number: BYTES}
    found = fields(words_of(data), end[:-1], end[1:], single, several)
    assert found.whole.all()
    for row, content in enumerate(contents):
        whole = [
            value for n, value in content if n == number and isinstance(value, int)
        ]
        assert found.at[number][row] >= 0 if whole else found.at[number][row] == -1
        if whole:
            assert int(found.value[number][row]) & (1 << 64) - 1 == whole[-1]
    parts = [
        v
        for content in contents
        for n, v in content
        if n == number and isinstance(v, bytes)
    ]
    many = found.repeated[number]
    places = zip(many.at.tolist(), many.value.tolist(), strict=True)
    assert [data[at : at + size] for at, size in places] == parts


def test_a_message_with_too_many_fields_is_unreadable_and_others_are_not() -> None:
    data = message([(1, 1)] * (MAX_FIELDS + 1)) + message([(1, 7)])
    start, end = np.array([0, len(data) - 2]), np.array([len(data) - 2, len(data)])
    found = fields(words_of(data), start, end, {1: VARINT})
    assert found.whole.tolist() == [False, True]
    assert found.value[1][1] == 7


def test_a_message_with_as_many_fields_as_are_read_is_readable() -> None:
    data = message([(1, n) for n in range(MAX_FIELDS)])
    found = fields(words_of(data), np.array([0]), np.array([len(data)]), {1: VARINT})
    assert found.whole.tolist() == [True]
    assert found.value[1].tolist() == [MAX_FIELDS - 1]


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a length of 2^64 - 1
        b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",  # of 2^63
        b"\x0a\x05abc",  # behind the message
        b"\x09abc",
        b"\x0b\x0c",  # a group
        b"\xff" * 11,
    ],
)
def test_damaged_fields_make_a_message_unreadable(data: bytes) -> None:
    found = fields(words_of(data), np.array([0]), np.array([len(data)]), {1: BYTES})
    assert found.whole.tolist() == [False]


def test_doubles_are_found_at_their_bytes() -> None:
    data = message([(3, 2.5)])
    found = fields(words_of(data), np.array([0]), np.array([len(data)]), {3: FIXED64})
    assert np.frombuffer(data, "<f8", 1, int(found.at[3][0])).tolist() == [2.5]


@given(st.lists(st.binary(max_size=40), max_size=30), st.binary(max_size=20))
def test_consecutive_packets_are_found_with_their_bounds(
    contents: list[bytes], rest: bytes
) -> None:
    whole = b"".join(packet((1, content)) for content in contents)
    data = whole + rest.replace(b"\x0a", b"")
    start, end, used, next_end = find_packets(words_of(data), data)
    places = zip(start.tolist(), end.tolist(), strict=True)
    assert [data[at:end] for at, end in places] == [
        message([(1, each)]) for each in contents
    ]
    assert (used, next_end < 0) == (len(whole), len(data) > len(whole))


def test_packets_in_packets_are_none() -> None:
    inner = packet((1, b"x")) * 5
    data = packet((1, inner)) + inner
    assert len(find_packets(words_of(data), data)[0]) == 6


def test_the_last_packet_may_be_cut() -> None:
    data = packet((1, b"abc")) + packet((1, b"x" * 50))[:20]
    start, _, used, next_end = find_packets(words_of(data), data)
    assert (len(start), used, next_end) == (1, 7, 61)
