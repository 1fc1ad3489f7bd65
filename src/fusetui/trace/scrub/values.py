"""Removes private data from a JSON value and everything inside it.

Numbers keep the digits they were written with, and repeated keys stay repeated.
"""

from __future__ import annotations

import json  # which reads repeated keys, and gives numbers as they are written
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
MAX_CACHED_TEXTS = 50_000
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
    """A value of JSON, with numbers as their digits and objects as Pairs."""
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
    written: list[str] = []
    waiting: list[Any] = [value]  # the next one is the last
    while waiting:
        part = waiting.pop()
        match part:
            case Written() | Digits():
                written.append(str(part))
            case Pairs():
                waiting += reversed(_object_parts(part))
            case dict():
                waiting += reversed(_object_parts(part.items()))
            case list() | tuple():
                waiting += reversed(_list_parts(part))
            case Decimal() if part.is_finite():  # of repair.loads
                written.append(str(part))
            case Decimal():
                written.append(f'"{part}"')
            case float() if not math.isfinite(part):
                written.append(f'"{part}"')
            case _:
                written.append(json.dumps(part))
    return "".join(written)


def _object_parts(pairs: Iterable[tuple[str, Any]]) -> list[Any]:
    """An object divided into JSON and its values."""
    parts: list[Any] = [Written("{")]
    for number, (key, value) in enumerate(pairs):
        between = ", " if number else ""
        parts += (Written(f"{between}{json.dumps(key)}: "), value)
    return [*parts, Written("}")]


def _list_parts(values: Iterable[Any]) -> list[Any]:
    """A list divided into JSON and its values."""
    parts: list[Any] = [Written("[")]
    for number, value in enumerate(values):
        parts += (Written(", " if number else ""), value)
    return [*parts, Written("]")]


class Values:
    """The values of one file."""

    def __init__(self, texts: Texts, trace_name: str = TRACE_NAME) -> None:
        """`trace_name` is what the trace is called afterwards."""
        self._texts = texts
        self._names = texts.names
        self._trace_name = trace_name
        self._text = lru_cache(MAX_CACHED_TEXTS)(texts.learn)
        self.variables: Counter[str] = Counter()  # of environments that were removed

    def finish(self) -> None:
        """Ends learning: from now on values are scrubbed."""
        self._text = lru_cache(MAX_CACHED_TEXTS)(self._texts.scrub)
        self.variables.clear()

    def metadata(self, keys: Pairs) -> Pairs:
        """The keys around traceEvents, with their values."""
        scrubbed = Pairs()
        for key, value in keys:
            new_key = self._text(key)
            kind = kind_in_metadata(key, is_top=True)
            scrubbed.append((new_key, self._member(kind, key, value, in_metadata=True)))
        return scrubbed

    def scrubbed(self, value: Any, in_metadata: bool = False) -> Any:
        """An element of traceEvents, or another value whose key says nothing about
        it."""
        match value:
            case Digits():
                return value
            case str():
                return self._text(value)
            case Pairs():
                telling_keys = TELLING.intersection(key for key, _ in value)
                if len(telling_keys) > 1:
                    return self._without(value)
                return self._members(value, in_metadata)
            case list():
                if _is_dump(value):
                    return self._without(value)
                return [self.scrubbed(item, in_metadata) for item in value]
        return value

    def _members(self, pairs: Pairs, in_metadata: bool) -> Pairs:
        """The members of an object without private keys and values."""
        scrubbed = Pairs()
        for key, value in pairs:
            kind = kind_in_metadata(key, is_top=False) if in_metadata else kind_of(key)
            new_value = self._member(kind, key, value, in_metadata)
            scrubbed.append((self._text(key), new_value))
        return scrubbed

    def _member(
        self, kind: KeyKind | None, key: str, value: Any, in_metadata: bool
    ) -> Any:
        if kind is None:
            return self.scrubbed(value, in_metadata)
        return self._of_kind(kind, key, value, in_metadata)

    def _of_kind(self, kind: KeyKind, key: str, value: Any, in_metadata: bool) -> Any:
        """The value of a key that says what it is."""
        if value is None or isinstance(value, bool) or value == "":
            return value
        if isinstance(value, Digits):
            is_private = kind is KeyKind.OTHER or secrecy(key) is Secrecy.STRONG
            return REMOVED if is_private else value
        if isinstance(value, str):
            return self._leaf(kind, key, value)
        if kind is KeyKind.ENVIRONMENT:
            return self._without(value)
        if kind in (KeyKind.USER, KeyKind.HOST, KeyKind.FOLDER, KeyKind.MAYBE):
            if isinstance(value, Pairs):
                return self.scrubbed(value, in_metadata)
            return [self._of_kind(kind, key, item, in_metadata) for item in value]
        self._learn_all(kind, key, value)
        return REMOVED

    def _leaf(self, kind: KeyKind, key: str, value: str) -> str:
        """The value of such a key, if it is a text."""
        match kind:
            case KeyKind.USER:
                return self._names.user(value)
            case KeyKind.HOST:
                return self._names.host(value)
            case KeyKind.SECRET | KeyKind.MAYBE:
                if hides(key, value):
                    return self._names.secret(value)
                return self._text(value)
            case KeyKind.FOLDER:
                return self._texts.path(value)
        self._texts.learn(value)
        if kind is KeyKind.TRACE:
            file_name = value.replace("\\", "/").rpartition("/")[2]
            written_by_torch = WRITTEN_BY_TORCH.fullmatch(file_name)
            if written_by_torch:
                self._names.host(written_by_torch["host"])
            return self._trace_name
        if kind is KeyKind.OTHER and VARIABLE.fullmatch(key):
            self.variables[key] += 1
        return REMOVED

    def _learn_all(self, kind: KeyKind, key: str, value: Pairs | list[Any]) -> None:
        """Learns from a value that is removed as a whole: its content is searched for
        everywhere."""
        if isinstance(value, Pairs):
            for inner_key, item in value:
                inner_kind = kind_of(inner_key) or kind
                self._of_kind(inner_kind, inner_key, item, in_metadata=True)
            return
        self._texts.learn(" ".join(item for item in value if isinstance(item, str)))
        if kind is KeyKind.SECRET:
            for item in value:
                self._of_kind(kind, key, item, in_metadata=True)

    def _without(self, environment: Pairs | list[Any]) -> Pairs | list[Any]:
        """An environment without its variables; learns the users, hosts and secrets in
        it."""
        if not isinstance(environment, Pairs):
            lines = [str(line) for line in environment]
            self.variables.update(line.partition("=")[0] for line in lines)
            self._texts.learn("\n".join(lines))
            return []
        for name, value in environment:
            self.variables[name] += 1
            kind = kind_of(name)
            if kind in (KeyKind.USER, KeyKind.HOST, KeyKind.SECRET, KeyKind.MAYBE):
                self._of_kind(kind, name, value, in_metadata=True)
            elif isinstance(value, str) and not isinstance(value, Digits):
                self._texts.learn(value)
        return Pairs()


def _is_dump(values: list[Any]) -> bool:
    """A list of `NAME=value`, as `env` prints it."""
    names = set()
    for value in values:
        if not isinstance(value, str) or not ASSIGNMENT.match(value):
            return False
        names.add(value.partition("=")[0])
    return len(names & TELLING) > 1
