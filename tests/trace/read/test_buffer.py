"""Chunks that one process writes while another reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

import pytest

from fusetui.trace.read.chunks import Chunk, decode_list
from fusetui.trace.read.document import read_at
from fusetui.trace.read.workers import Buffer, put

EVENT = b'{"ph":"X","name":"op","ts":1,"dur":2}'


@pytest.fixture
def buffer() -> Iterator[Buffer]:
    with closing(Buffer()) as made:
        yield made


@pytest.fixture
def chunk() -> Chunk:
    found = decode_list(EVENT, 0, len(EVENT))
    assert found
    return found


def test_what_is_new_comes_once(buffer: Buffer, chunk: Chunk) -> None:
    put(buffer.file, 3, chunk)
    ((cell, found),) = buffer.new()
    assert cell == 3
    assert found
    assert found.columns.names == ("op",)
    put(buffer.file, 5, None)
    assert list(buffer.new()) == [(5, None)]
    assert list(buffer.new()) == []


def test_a_record_counts_when_it_is_whole(buffer: Buffer, chunk: Chunk) -> None:
    put(buffer.file, 3, chunk)
    size = os.fstat(buffer.file.fileno()).st_size
    text = read_at(buffer.file.fileno(), 0, size)
    for less in (size - 1, size // 2, 4):
        os.truncate(buffer.file.fileno(), less)
        assert list(buffer.new()) == []
    os.pwrite(buffer.file.fileno(), text, 0)
    assert [cell for cell, _ in buffer.new()] == [3]
