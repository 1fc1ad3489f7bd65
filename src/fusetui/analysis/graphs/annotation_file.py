"""Reads the files in which torch.cuda.graph_annotations is kept: a pickle of a mapping
from (graph id << 32) | node id to what was annotated, or the same as JSON.

A pickle is a program. Of its operations only those are carried out here that build
plain values: none of them imports, looks up or calls anything.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from fusetui.text.figures import size
from fusetui.trace.model.errors import CannotReadError
from fusetui.trace.read.source import reason

MAX_FILE_BYTES: Final = 32 << 20
MAX_OPERATIONS: Final = 4_000_000
MAX_INTEGER_BITS: Final = 64

_MARK: Final = object()
"""What MARK puts on the stack: later operations take what lies above it."""

_PUSHES_ARGUMENT: Final = frozenset(
    {
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "FLOAT",
        "BINFLOAT",
        "UNICODE",
        "BINUNICODE",
        "BINUNICODE8",
        "SHORT_BINUNICODE",
    }
)
_PUSHES_NEW: Final[dict[str, Callable[[], Any]]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
}
_TUPLE_LENGTHS: Final = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_WRITES_MEMO: Final = ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE")
_READS_MEMO: Final = ("GET", "BINGET", "LONG_BINGET")
_FRAMING: Final = ("PROTO", "FRAME")


class _RefusedError(Exception):
    """The file has something that annotations do not have; the text says what."""


def read_annotations(path: str) -> dict[int, Any]:
    """What a file annotates, by (graph id << 32) | node id.

    Raises CannotReadError, with one sentence, for a file that cannot be read, is
    damaged or holds anything else."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        return _annotations_in(data)
    except OSError as error:
        raise CannotReadError(f"{path} cannot be read: {reason(error)}.") from None
    except _RefusedError as refused:
        raise CannotReadError(
            f"{path} holds no annotations of graphs: {refused}."
        ) from None
    except (
        ValueError,
        TypeError,
        LookupError,
        RecursionError,
        OverflowError,
        MemoryError,
    ):
        raise CannotReadError(
            f"{path} holds no annotations of graphs, or is damaged."
        ) from None


def _annotations_in(data: bytes) -> dict[int, Any]:
    """What the bytes of a file annotate; see `read_annotations`. Raises _RefusedError,
    and for damaged bytes ValueError, TypeError, LookupError and others."""
    if len(data) > MAX_FILE_BYTES:
        raise _RefusedError(f"it is larger than {size(MAX_FILE_BYTES)}")
    is_json = data[:1] == b"{"
    annotations = msgspec.json.decode(data) if is_json else _unpickled(data)
    if not isinstance(annotations, dict):
        raise _RefusedError("it holds no mapping")
    return {int(node): annotation for node, annotation in annotations.items()}


def _unpickled(data: bytes) -> Any:
    """The value that a pickle builds. Raises _RefusedError, ValueError, TypeError or
    LookupError."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for count, (operation, argument, _) in enumerate(pickletools.genops(data)):
        name = operation.name
        if count >= MAX_OPERATIONS:
            raise _RefusedError(f"it takes more than {MAX_OPERATIONS:,} steps")
        if name in _PUSHES_ARGUMENT:
            stack.append(_limited(argument))
        elif name in _PUSHES_NEW:
            stack.append(_PUSHES_NEW[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name in _WRITES_MEMO:
            key = len(memo) if name == "MEMOIZE" else int(argument or 0)
            memo[key] = stack[-1]
        elif name in _READS_MEMO:
            stack.append(memo[int(argument or 0)])
        elif name == "STOP":
            return stack.pop()
        elif name not in _FRAMING:
            _collect(name, stack)
    raise _RefusedError("it ends early")


def _collect(name: str, stack: list[Any]) -> None:
    """Carries out an operation that puts values on the stack into a tuple, a list or a
    mapping. Raises _RefusedError for any other operation."""
    if name in _TUPLE_LENGTHS:
        length = _TUPLE_LENGTHS[name]
        stack[-length:] = [tuple(stack[-length:])]
    elif name == "TUPLE":
        stack.append(tuple(_pop_to_mark(stack)))
    elif name == "LIST":
        stack.append(_pop_to_mark(stack))
    elif name == "DICT":
        stack.append(dict(_pairs(_pop_to_mark(stack))))
    elif name == "APPEND":
        value = stack.pop()
        list.append(stack[-1], value)
    elif name == "APPENDS":
        values = _pop_to_mark(stack)
        list.extend(stack[-1], values)
    elif name == "SETITEM":
        value = stack.pop()
        key = stack.pop()
        dict.update(stack[-1], _pairs([key, value]))
    elif name == "SETITEMS":
        pairs = _pairs(_pop_to_mark(stack))
        dict.update(stack[-1], pairs)
    else:
        raise _RefusedError(f"it has more than plain values ({name})")


def _pop_to_mark(stack: list[Any]) -> list[Any]:
    """Takes the values above the last mark, and the mark, from the stack."""
    values = list(iter(stack.pop, _MARK))
    values.reverse()
    return values


def _pairs(items: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Keys and values by turns as pairs. Keys are numbers or texts: to compare others
    may take as long as their author likes."""
    keys = items[::2]
    if not all(isinstance(key, int | str) for key in keys):
        raise _RefusedError("its keys are neither numbers nor texts")
    return zip(keys, items[1::2], strict=True)


def _limited(value: Any) -> Any:
    """A number or a text, unless the number is too large."""
    if isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
        raise _RefusedError(f"it has a number of more than {MAX_INTEGER_BITS} bits")
    return value
