"""Every name of the corpus that we wrote: each field that it determines is set, and no
other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from tests.gpu.kernel_names.written import WRITERS, corpus

from fusetui.gpu.kernel_names import decode

TEXTS = ("name", "short", "parts")
FEWEST = 10  # names of a writer


def settled(name: str) -> dict[str, Any]:
    found = decode(name)
    if found is None:
        return {}
    fields = {
        key: value
        for key, value in msgspec.to_builtins(found).items()
        if key not in TEXTS
    }
    return {key: list(v) if isinstance(v, tuple) else v for key, v in fields.items()}


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
def test_exactly_what_the_name_settles(writer: Any) -> None:
    wrong = {w.name: settled(w.name) for w in writer() if settled(w.name) != w.fields}
    assert not wrong


def test_the_corpus_is_a_corpus() -> None:
    """A few hundred distinct names, and enough of each writer to vary every part."""
    names = [written.name for written in corpus()]
    assert len(names) == len(set(names)) >= 300
    families = Counter(written.fields["family"] for written in corpus())
    assert len(families) >= len(WRITERS)
    assert all(len(list(writer())) >= FEWEST for writer in WRITERS)


def test_every_part_points_into_the_name() -> None:
    for written in corpus():
        found = decode(written.name)
        assert found is not None
        assert all(
            0 <= start < end <= len(written.name) and text
            for start, end, text in found.parts
        )
