"""Reads the files of torch.cuda.graph_annotations: a pickle with a mapping from (graph
id << 32) | node id to annotations, or the same as JSON.

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
"""What the operation MARK puts on the stack. Later operations take all values above
it."""

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


_ERRORS_OF_DAMAGED_FILES: Final = (
    ValueError,
    TypeError,
    LookupError,
    RecursionError,
    OverflowError,
    MemoryError,
)
"""What decoding raises for bytes that are neither JSON nor a whole pickle."""


class _RefusedError(Exception):
    """A file has something that annotations do not have; the text says what."""


def read_annotations(path: str) -> dict[int, Any]:
    """Read a file in which torch.cuda.graph_annotations is kept.

    Returns:
        What each node is annotated with, by (graph id << 32) | node id.

    Raises:
        CannotReadError: The file cannot be read, is damaged or holds anything else. The
            text is one sentence.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)  # one more shows that it is too large
        return _decode_annotations(data)
    except OSError as error:
        raise CannotReadError(f"{path} cannot be read: {reason(error)}.") from None
    except _RefusedError as refused:
        raise CannotReadError(
            f"{path} contains no graph annotations: {refused}."
        ) from None
    except _ERRORS_OF_DAMAGED_FILES:
        raise CannotReadError(
            f"{path} contains no graph annotations, or is damaged."
        ) from None


def _decode_annotations(data: bytes) -> dict[int, Any]:
    """Decode the bytes of a file of annotations, which is JSON or a pickle.

    Raises:
        _RefusedError: The bytes are no annotations.
        ValueError, TypeError, LookupError and others: The bytes are damaged.
    """
    if len(data) > MAX_FILE_BYTES:
        raise _RefusedError(f"it is larger than {size(MAX_FILE_BYTES)}")

    is_json = data[:1] == b"{"
    annotations = msgspec.json.decode(data) if is_json else _parse_pickle(data)
    if not isinstance(annotations, dict):
        raise _RefusedError("it contains no mapping")
    return {int(node): annotation for node, annotation in annotations.items()}


def _parse_pickle(data: bytes) -> Any:
    """Build the value that a pickle describes, without running any code of it.

    A pickle is a list of operations on a stack. The *memo* keeps values that later
    operations use again, by their numbers.

    Raises:
        _RefusedError: The pickle has an operation that does not build a plain value, or
            takes too many steps.
        ValueError, TypeError, LookupError: The pickle is damaged.
    """
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for step, (operation, argument, _) in enumerate(pickletools.genops(data)):
        if step >= MAX_OPERATIONS:
            raise _RefusedError(f"it takes more than {MAX_OPERATIONS:,} steps")
        name = operation.name
        if name in _PUSHES_ARGUMENT:
            stack.append(_check_size(argument))
        elif name in _PUSHES_NEW:
            make_new = _PUSHES_NEW[name]
            stack.append(make_new())
        elif name == "MARK":
            stack.append(_MARK)
        elif name in _WRITES_MEMO:
            # MEMOIZE takes the next number that is free.
            number = len(memo) if name == "MEMOIZE" else int(argument or 0)
            memo[number] = stack[-1]
        elif name in _READS_MEMO:
            stack.append(memo[int(argument or 0)])
        elif name == "STOP":
            return stack.pop()
        elif name not in _FRAMING:
            _build_container(name, stack)
    raise _RefusedError("it ends early")


def _build_container(name: str, stack: list[Any]) -> None:
    """Carry out an operation that collects values in a tuple, a list or a mapping.

    Args:
        name: The name of the operation.
        stack: The values that were built so far; it is changed in place.

    Raises:
        _RefusedError: It is any other operation.
    """
    if name in _TUPLE_LENGTHS:
        length = _TUPLE_LENGTHS[name]
        values = tuple(stack[-length:])
        del stack[-length:]
        stack.append(values)
    elif name == "TUPLE":
        stack.append(tuple(_pop_to_mark(stack)))
    elif name == "LIST":
        stack.append(_pop_to_mark(stack))
    elif name == "DICT":
        stack.append(dict(_key_value_pairs(_pop_to_mark(stack))))
    elif name == "APPEND":
        value = stack.pop()
        # Calling the method of the class refuses everything that is not a list.
        list.append(stack[-1], value)
    elif name == "APPENDS":
        values_to_append = _pop_to_mark(stack)
        list.extend(stack[-1], values_to_append)
    elif name == "SETITEM":
        value = stack.pop()
        key = stack.pop()
        dict.update(stack[-1], _key_value_pairs([key, value]))
    elif name == "SETITEMS":
        keys_and_values = _pop_to_mark(stack)
        dict.update(stack[-1], _key_value_pairs(keys_and_values))
    else:
        raise _RefusedError(f"it contains values that are not plain data ({name})")


def _pop_to_mark(stack: list[Any]) -> list[Any]:
    """Remove the last mark and the values above it from the stack; return these.

    E.g. of the stack (1, mark, 2, 3), it leaves (1) and returns [2, 3].

    Raises:
        IndexError: There is no mark.
    """
    values = []
    value = stack.pop()
    while value is not _MARK:
        values.append(value)
        value = stack.pop()
    values.reverse()
    return values


def _key_value_pairs(items: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Pair a list in which keys and values alternate.

    Keys must be numbers or texts. To compare others may take as long as the author of
    the file likes.

    Raises:
        _RefusedError: A key is neither a number nor a text.
    """
    keys = items[::2]
    values = items[1::2]
    if not all(isinstance(key, int | str) for key in keys):
        raise _RefusedError("its keys are neither numbers nor strings")
    return zip(keys, values, strict=True)


def _check_size(value: Any) -> Any:
    """Return a number or a text unchanged. Raises _RefusedError for a huge number."""
    if isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
        raise _RefusedError(
            f"it contains a number of more than {MAX_INTEGER_BITS} bits"
        )
    return value
