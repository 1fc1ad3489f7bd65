"""Changes made to an invented program itself, by the words of `fusetui whatif`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from tests.analysis.replay.programs import (
    FRAME,
    NOTE,
    OP,
    Backward,
    Call,
    Copy,
    GraphLaunch,
    Host,
    Item,
    Launch,
    Next,
    Own,
    Program,
    Range,
    Record,
    Sync,
    WaitEvent,
    everywhere,
    mapped,
    on_items,
)

UNITS = {"ns": 1, "us": 1000, "ms": 1_000_000}
FAMILIES = {"gemm": "gemm", "attention": "flash", "pointwise": "elementwise"}
COLLECTIVE = "ncclDevKernel"
CHAIN = "Gate_"
USUAL_GRAPH_LAUNCH = 10_000


def changed(whole: Program, *changes: str) -> Program:
    """The program with these changes, one after the other. Raises ValueError for
    unknown ones."""
    for text in changes:
        whole = _changed(whole, text)
    return whole


def _changed(whole: Program, text: str) -> Program:
    what, _, amount = text.rpartition(" ")
    what = what or amount
    kind, _, pattern = what.partition(":")
    if kind in ("kernel", "family"):
        wanted = FAMILIES[pattern] if kind == "family" else pattern
        return everywhere(whole, on_items(lambda item: _lasting(item, wanted, amount)))
    if kind == "comm" and amount.startswith("x"):
        return everywhere(
            whole, on_items(lambda item: _lasting(item, COLLECTIVE, amount))
        )
    if kind in ("op", "module") and amount.startswith("x"):
        return _host_scaled(whole, kind, pattern, _factor(amount))
    if kind == "python":
        return everywhere(whole, lambda host: _python_scaled(host, _factor(amount)))
    if kind == "fuse":
        return everywhere(whole, _fused)
    if kind == "no-sync":
        return everywhere(whole, lambda host: _unsynced(host, pattern))
    if kind == "graph":
        usual = _usual_graph_launch(whole)
        return everywhere(whole, lambda host: _graphed(host, pattern, usual))
    if kind == "loader":
        workers = int(pattern.partition("=")[2] or 1)
        return everywhere(whole, lambda host: _loaded(host, workers))
    raise ValueError(f"no such change: {text}")


def _factor(amount: str) -> Fraction:
    return Fraction(amount.removeprefix("x"))


def _times(ns: int, factor: Fraction) -> int:
    """Exact: invented times divide by what they are changed by."""
    found = ns * factor
    assert found.denominator == 1, (ns, factor)
    return int(found)


def _lasting(item: Item, pattern: str, amount: str) -> Item:
    if pattern not in item.name:
        return item
    if amount.startswith("x"):
        return replace(item, ns=_times(item.ns, _factor(amount)))
    number, unit = re.fullmatch(r"([\d.]+)(ns|us|ms)", amount).groups()  # type: ignore[union-attr]
    return replace(item, ns=_times(UNITS[unit], Fraction(number)))


def _host_scaled(whole: Program, kind: str, pattern: str, factor: Fraction) -> Program:
    """At 0 ops and modules go with all that is in them; else their threads' own time is
    scaled."""

    def belongs(host: Host) -> bool:
        if not isinstance(host, Range) or pattern not in host.name:
            return False
        if kind == "op":
            return host.kind == OP
        return host.kind == FRAME and host.name.startswith("nn.Module: ")

    def edit(host: Host) -> tuple[Host, ...]:
        if not belongs(host):
            return (host,)
        if factor == 0:
            return ()
        assert isinstance(host, Range)
        return (replace(host, body=_scaled(host.body, factor)),)

    return everywhere(whole, edit)


def _python_scaled(host: Host, factor: Fraction) -> tuple[Host, ...]:
    """What a Python frame does itself: no op and no other frame in it, but
    annotations."""

    def each(inner: Host) -> Host:
        if isinstance(inner, Own):
            return Own(_times(inner.ns, factor))
        if isinstance(inner, Range) and inner.kind == NOTE:
            return replace(inner, body=tuple(map(each, inner.body)))
        return inner

    if isinstance(host, Range) and host.kind == FRAME:
        return (replace(host, body=tuple(map(each, host.body))),)
    return (host,)


def _scaled(body: tuple[Host, ...], factor: Fraction) -> tuple[Host, ...]:
    """All of the thread's own time in there; calls cost what they cost."""

    def edit(host: Host) -> tuple[Host, ...]:
        return (Own(_times(host.ns, factor)) if isinstance(host, Own) else host,)

    return mapped(body, edit)


def _unsynced(host: Host, pattern: str) -> tuple[Host, ...]:
    """A call so named, or each call in an op so named, takes only what it takes when
    there is nothing to wait for; what it copies is copied later."""
    if isinstance(host, Range) and pattern in host.name:
        return (
            replace(host, body=mapped(host.body, lambda inner: _unsynced(inner, ""))),
        )
    if isinstance(host, Sync) and pattern in host.call:
        return (Call(host.call, host.ns),)
    if isinstance(host, Copy) and pattern in host.name:
        return (Launch(host.item, host.ns, host.name),)
    return (host,)


def _items(body: tuple[Host, ...]) -> Iterator[Item]:
    for host in body:
        if isinstance(host, Launch):
            yield host.item
        elif isinstance(host, GraphLaunch):
            yield from host.items
        elif isinstance(host, Range):
            yield from _items(host.body)
        elif isinstance(host, Sync | Copy | Backward | Record | WaitEvent):
            raise ValueError("a wait lies inside")


def _usual_graph_launch(whole: Program) -> int:
    costs: list[int] = []

    def see(host: Host) -> tuple[Host, ...]:
        costs.extend([host.ns] if isinstance(host, GraphLaunch) else [])
        return (host,)

    everywhere(whole, see)
    return sorted(costs)[len(costs) // 2] if costs else USUAL_GRAPH_LAUNCH


def _graphed(host: Host, pattern: str, usual: int) -> tuple[Host, ...]:
    """All launches of the annotation or frame in one call; what the thread did between
    is gone."""
    if isinstance(host, Range) and pattern and pattern in host.name:
        launch = GraphLaunch(tuple(_items(host.body)), usual)
        return (replace(host, body=(launch,)),)
    return (host,)


def _loaded(host: Host, workers: int) -> tuple[Host, ...]:
    """Batches are made beside the thread, by so many workers, or by so many more."""
    return (
        (replace(host, workers=host.workers + workers),)
        if isinstance(host, Next)
        else (host,)
    )


def _fused(host: Host) -> tuple[Host, ...]:
    """The ops of a chain launch one kernel: what one of them writes for the next one is
    not moved. Each keeps the rate at which it moves the rest."""
    if not isinstance(host, Range) or CHAIN not in host.name:
        return (host,)
    ops = [one for one in host.body if isinstance(one, Range)]
    total = 0
    for place, one in enumerate(ops):
        (launch,) = (part for part in one.body if isinstance(part, Launch))
        tensors = len(one.dims) + 1
        between = (place > 0) + (place < len(ops) - 1)
        total += _times(launch.item.ns, Fraction(tensors - between, tensors))

    def without(one: Host) -> tuple[Host, ...]:
        if not isinstance(one, Launch):
            return (one,)
        first = one in ops[0].body
        return (replace(one, item=replace(one.item, ns=total)),) if first else ()

    return (replace(host, body=mapped(host.body, without)),)
