"""Reads the files in which torch.cuda.graph_annotations is kept: a pickle of a mapping
from (graph id << 32) | node id to what was annotated, or the same as JSON.

A pickle is a program. Of its operations only those are carried out here that build
plain values: none of them imports, looks up or calls anything.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from fusetui.text.figures import size
from fusetui.trace.model.errors import CannotRead
from fusetui.trace.read.source import reason

MOST_BYTES = 32 << 20
MOST_STEPS = 4_000_000
INT_BITS = 64
MARK = object()
PLAIN = (
    *(
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "FLOAT",
        "BINFLOAT",
    ),
    *("UNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINUNICODE"),
)
EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
KEPT = ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE")
TAKEN = ("GET", "BINGET", "LONG_BINGET")
FRAMING = ("PROTO", "FRAME")


class _RefusedError(Exception):
    """Says what the file has that annotations have not."""


def read_annotations(path: str) -> dict[int, Any]:
    """What a file annotates, by (graph id << 32) | node id. Raises CannotRead in one
    sentence."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise _RefusedError(f"it is larger than {size(MOST_BYTES)}")
        found = msgspec.json.decode(data) if data[:1] == b"{" else _built(data)
        if not isinstance(found, dict):
            raise _RefusedError("it holds no mapping")
        return {int(key): value for key, value in found.items()}
    except OSError as error:
        raise CannotRead(f"{path} cannot be read: {reason(error)}.") from None
    except _RefusedError as refused:
        raise CannotRead(f"{path} holds no annotations of graphs: {refused}.") from None
    except (
        ValueError,
        TypeError,
        LookupError,
        RecursionError,
        OverflowError,
        MemoryError,
    ):
        raise CannotRead(
            f"{path} holds no annotations of graphs, or is damaged."
        ) from None


def _built(data: bytes) -> Any:
    """What a pickle builds. Raises _RefusedError, ValueError, TypeError or
    LookupError."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for step, (code, arg, _) in enumerate(pickletools.genops(data)):
        name = code.name
        if step >= MOST_STEPS:
            raise _RefusedError(f"it takes more than {MOST_STEPS:,} steps")
        if name in PLAIN:
            stack.append(_small(arg))
        elif name in EMPTY:
            stack.append(EMPTY[name]())
        elif name == "MARK":
            stack.append(MARK)
        elif name in KEPT:
            memo[len(memo) if name == "MEMOIZE" else int(arg or 0)] = stack[-1]
        elif name in TAKEN:
            stack.append(memo[int(arg or 0)])
        elif name == "STOP":
            return stack.pop()
        elif name not in FRAMING:
            _collect(name, stack)
    raise _RefusedError("it ends early")


def _collect(name: str, stack: list[Any]) -> None:
    """Puts what is on the stack into a tuple, a list or a mapping."""
    if name in TUPLES:
        number = TUPLES[name]
        stack[-number:] = [tuple(stack[-number:])]
    elif name in ("TUPLE", "LIST", "DICT"):
        items = _above_mark(stack)
        make: dict[str, Callable[[list[Any]], Any]] = {
            "TUPLE": tuple,
            "LIST": list,
            "DICT": dict,
        }
        stack.append(dict(_pairs(items)) if name == "DICT" else make[name](items))
    elif name in ("APPEND", "APPENDS"):
        items = [stack.pop()] if name == "APPEND" else _above_mark(stack)
        list.extend(stack[-1], items)
    elif name in ("SETITEM", "SETITEMS"):
        items = (
            [stack.pop(-2), stack.pop()] if name == "SETITEM" else _above_mark(stack)
        )
        dict.update(stack[-1], _pairs(items))
    else:
        raise _RefusedError(f"it has more than plain values ({name})")


def _above_mark(stack: list[Any]) -> list[Any]:
    return list(iter(stack.pop, MARK))[::-1]


def _pairs(items: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Keys are numbers or texts: to compare others may take as long as their author
    likes."""
    if not all(isinstance(key, int | str) for key in items[::2]):
        raise _RefusedError("its keys are neither numbers nor texts")
    return zip(items[::2], items[1::2], strict=True)


def _small(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > INT_BITS:
        raise _RefusedError("it has a number of more than 64 bits")
    return value
