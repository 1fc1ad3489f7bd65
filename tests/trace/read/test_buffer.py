"""Chunks that one process puts down while another reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

import pytest

from fusetui.trace.read.buffer import Box, put
from fusetui.trace.read.chunks import Chunk, decode_list

EVENT = b'{"ph":"X","name":"op","ts":1,"dur":2}'


@pytest.fixture
def box() -> Iterator[Box]:
    with closing(Box()) as made:
        yield made


@pytest.fixture
def chunk() -> Chunk:
    found = decode_list(EVENT, 0, len(EVENT))
    assert found
    return found


def test_what_is_new_comes_once(box: Box, chunk: Chunk) -> None:
    put(box.fileno(), 3, chunk)
    ((cell, found),) = box.new()
    assert cell == 3
    assert found
    assert found.columns.names == ["op"]
    put(box.fileno(), 5, None)
    assert list(box.new()) == [(5, None)]
    assert list(box.new()) == []


def test_a_record_counts_when_it_is_whole(box: Box, chunk: Chunk) -> None:
    put(box.fileno(), 3, chunk)
    size = os.fstat(box.fileno()).st_size
    text = os.pread(box.fileno(), size, 0)
    for less in (size - 1, size // 2, 4):
        os.truncate(box.fileno(), less)
        assert list(box.new()) == []
    os.pwrite(box.fileno(), text, 0)
    assert [cell for cell, _ in box.new()] == [3]
