"""Tensors are copied and cast."""

from __future__ import annotations

from .conftest import Ask
from .work import ADD, COPY, Event, work


def test_it_speaks(found: Ask) -> None:
    (finding,) = found("casts-and-copies", work(("aten::copy_", COPY, 30), ("aten::add", ADD, 70)))
    assert finding.at_stake_ns == 30_000
    assert finding.text == (
        "1 kernel that copies, casts or concatenates takes 30 us (30.0 % of the span), most of it "
        "in aten::copy_."
    )


def test_pageable_copies(found: Ask) -> None:
    """Of the copy 20 us lie beside the kernel."""
    copy: Event = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)"}
    copy |= {"pid": 0, "tid": 9, "ts": 1_080, "dur": 50, "args": {"correlation": 9}}
    (finding,) = found("casts-and-copies", [*work(("aten::add", ADD, 100)), copy])
    assert finding.at_stake_ns == 30_000
    assert "pageable memory" in finding.text


def test_other_kernels_are_silent(found: Ask) -> None:
    assert found("casts-and-copies", work(("aten::add", ADD, 100))) == []
