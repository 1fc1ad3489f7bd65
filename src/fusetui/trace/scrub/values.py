"""A JSON value with everything in it -> the same without private data.

Numbers keep the digits they were written with, and repeated keys stay repeated.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from fusetui.trace.read.repair import repaired
from fusetui.trace.scrub.secrets import REMOVED, Secrecy, hides, secrecy
from fusetui.trace.scrub.texts import (
    TELLING,
    VARIABLE,
    KeyKind,
    Texts,
    kind_in_metadata,
    kind_of,
)

ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
TRACE_NAME = "trace.json"
MOST = 50_000  # texts that are cached
WRITTEN_BY_TORCH = re.compile(
    r"(?P<host>.+)_\d+\.\d+(?:\.pt)?\.trace(?:\.tmp)?(?:\.json)?.*"
)
"""`HOST_PID.NANOSECONDS.pt.trace.json`, the file names of
torch.profiler.tensorboard_trace_handler."""


class Digits(str):
    """A number as it is written."""

    __slots__ = ()


class Written(str):
    """A piece of JSON."""

    __slots__ = ()


class Pairs(list[tuple[str, Any]]):
    """An object: its keys in order, including repeated ones."""

    __slots__ = ()


def parse(text: bytes) -> Any:
    """JSON, repaired where that is safe (see repair.py), whose numbers are Digits and
    whose objects are Pairs. Raises ValueError and RecursionError."""
    try:
        return _parse(text)
    except ValueError:
        return _parse(repaired(text))


def _parse(text: bytes) -> Any:
    return json.loads(
        text.decode("utf-8", "replace"),
        parse_float=Digits,
        parse_int=Digits,
        parse_constant=str,  # NaN and infinity are text for the reader too
        object_pairs_hook=Pairs,
        strict=False,
    )


def write(value: Any) -> str:
    """The JSON of a parsed value, however deep it is; without numbers that JSON has
    not, and only ASCII, so that a lone surrogate is an escape."""
    parts: list[str] = []
    todo: list[Any] = [value]
    while todo:
        one = todo.pop()
        match one:
            case Written():
                parts.append(one)
            case Digits():
                parts.append(str(one))
            case Pairs():
                todo += reversed(_object_parts(one))
            case dict():
                todo += reversed(_object_parts(one.items()))
            case list() | tuple():
                todo += reversed(_list_parts(one))
            case Decimal() if one.is_finite():  # of repair.loads
                parts.append(str(one))
            case Decimal():
                parts.append(f'"{one}"')
            case float() if not math.isfinite(one):
                parts.append(f'"{one}"')
            case _:
                parts.append(json.dumps(one))
    return "".join(parts)


def _object_parts(pairs: Iterable[tuple[str, Any]]) -> list[Any]:
    parts: list[Any] = [Written("{")]
    for number, (key, value) in enumerate(pairs):
        between = ", " if number else ""
        parts += (Written(f"{between}{json.dumps(key)}: "), value)
    return [*parts, Written("}")]


def _list_parts(values: Iterable[Any]) -> list[Any]:
    parts: list[Any] = [Written("[")]
    for number, value in enumerate(values):
        parts += (Written(", " if number else ""), value)
    return [*parts, Written("]")]


class Values:
    """The values of one file."""

    def __init__(self, texts: Texts, trace_name: str = TRACE_NAME) -> None:
        self._texts, self._names = texts, texts.names
        self._trace_name = trace_name
        self._text = lru_cache(MOST)(texts.learn)
        self.variables: Counter[str] = Counter()  # of environments that were removed

    def finish(self) -> None:
        """Ends learning: from now on values are scrubbed."""
        self._text = lru_cache(MOST)(self._texts.scrub)
        self.variables.clear()

    def metadata(self, keys: Pairs) -> Pairs:
        """The keys around traceEvents, with their values."""
        return Pairs(
            (self._text(key), self._member(key, value, True, True))
            for key, value in keys
        )

    def _member(self, key: str, value: Any, metadata: bool, top: bool = False) -> Any:
        kind = kind_in_metadata(key, top) if metadata else kind_of(key)
        return (
            self._of(kind, key, value, metadata)
            if kind
            else self.scrubbed(value, metadata)
        )

    def scrubbed(self, value: Any, metadata: bool = False) -> Any:
        """An element of traceEvents, or another value whose key says nothing about
        it."""
        match value:
            case Digits():
                return value
            case str():
                return self._text(value)
            case Pairs():
                if len(TELLING.intersection(key for key, _ in value)) > 1:
                    return self._without(value)
                found = (
                    (key, self._member(key, inner, metadata)) for key, inner in value
                )
                return Pairs((self._text(key), new) for key, new in found)
            case list():
                if _is_dump(value):
                    return self._without(value)
                return [self.scrubbed(item, metadata) for item in value]
        return value

    def _of(self, kind: KeyKind, key: str, value: Any, metadata: bool) -> Any:
        """The value of a key that says what it is."""
        if value is None or isinstance(value, bool) or value == "":
            return value
        if isinstance(value, Digits):
            private = kind is KeyKind.OTHER or secrecy(key) is Secrecy.STRONG
            return REMOVED if private else value
        if isinstance(value, str):
            return self._leaf(kind, key, value)
        if kind is KeyKind.ENVIRONMENT:
            return self._without(value)
        if kind in (KeyKind.USER, KeyKind.HOST, KeyKind.FOLDER, KeyKind.MAYBE):
            if isinstance(value, Pairs):
                return self.scrubbed(value, metadata)
            return [self._of(kind, key, item, metadata) for item in value]
        self._learn_all(kind, key, value)
        return REMOVED

    def _leaf(self, kind: KeyKind, key: str, value: str) -> str:
        match kind:
            case KeyKind.USER:
                return self._names.user(value)
            case KeyKind.HOST:
                return self._names.host(value)
            case KeyKind.SECRET | KeyKind.MAYBE:
                return (
                    self._names.secret(value)
                    if hides(key, value)
                    else self._text(value)
                )
            case KeyKind.FOLDER:
                return self._texts.path(value)
        self._texts.learn(value)
        if kind is KeyKind.TRACE:
            name = value.replace("\\", "/").rpartition("/")[2]
            if found := WRITTEN_BY_TORCH.fullmatch(name):
                self._names.host(found["host"])
            return self._trace_name
        if kind is KeyKind.OTHER and VARIABLE.fullmatch(key):
            self.variables[key] += 1
        return REMOVED

    def _learn_all(self, kind: KeyKind, key: str, value: Any) -> None:
        """Learns from a value that is removed as a whole: its content is searched for
        everywhere."""
        if isinstance(value, Pairs):
            for inner, item in value:
                self._of(kind_of(inner) or kind, inner, item, True)
            return
        self._texts.learn(" ".join(item for item in value if isinstance(item, str)))
        if kind is KeyKind.SECRET:
            for item in value:
                self._of(kind, key, item, True)

    def _without(self, variables: Any) -> Any:
        """Removes an environment, but learns the users, hosts and secrets in it."""
        if not isinstance(variables, Pairs):
            self.variables.update(str(text).partition("=")[0] for text in variables)
            self._texts.learn("\n".join(map(str, variables)))
            return []
        for key, value in variables:
            self.variables[key] += 1
            kind = kind_of(key)
            if kind in (KeyKind.USER, KeyKind.HOST, KeyKind.SECRET, KeyKind.MAYBE):
                self._of(kind, key, value, True)
            elif isinstance(value, str) and not isinstance(value, Digits):
                self._texts.learn(value)
        return Pairs()


def _is_dump(values: list[Any]) -> bool:
    """A list of `NAME=value`, as `env` prints it."""
    found = [v for v in values if isinstance(v, str) and ASSIGNMENT.match(v)]
    telling = {value.partition("=")[0] for value in found} & TELLING
    return len(found) == len(values) and len(telling) > 1
