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
from fusetui.trace.scrub.secrets import REMOVED, Secrecy, hides_value, secrecy
from fusetui.trace.scrub.texts import (
    TELLING,
    VARIABLE,
    KeyKind,
    Texts,
    kind_in_metadata,
    kind_of_key,
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
    """Parse JSON, repaired where that is safe. Numbers become Digits, as they are
    written; objects become Pairs, which keep repeated keys. Raises ValueError or
    RecursionError."""
    try:
        return _parse_json(text)
    except ValueError:
        return _parse_json(repaired(text))


def _parse_json(text: bytes) -> Any:
    """Parse JSON without repairing it. Numbers become Digits, objects become Pairs."""
    return json.loads(
        text.decode("utf-8", "replace"),
        parse_float=Digits,
        parse_int=Digits,
        parse_constant=str,  # NaN and infinity are text for the reader too
        object_pairs_hook=Pairs,
        strict=False,
    )


def write(value: Any) -> str:
    """The JSON text of a parsed value, of any depth.

    Numbers that JSON does not have become texts. The text is ASCII, so that a lone
    surrogate is an escape.
    """
    texts: list[str] = []
    # a stack of its own, as deep values exceed the recursion limit
    parts_to_write: list[Any] = [value]  # the next one is the last
    while parts_to_write:
        part = parts_to_write.pop()
        match part:
            case Written() | Digits():
                texts.append(str(part))
            case Pairs():
                parts_to_write += reversed(_object_parts(part))
            case dict():
                parts_to_write += reversed(_object_parts(part.items()))
            case list() | tuple():
                parts_to_write += reversed(_list_parts(part))
            case Decimal() if part.is_finite():  # of repair.loads
                texts.append(str(part))
            case Decimal():
                texts.append(f'"{part}"')
            case float() if not math.isfinite(part):
                texts.append(f'"{part}"')
            case _:
                texts.append(json.dumps(part))
    return "".join(texts)


def _object_parts(pairs: Iterable[tuple[str, Any]]) -> list[Any]:
    """An object as a list of JSON texts with its values between them. `pairs` are its
    keys and values."""
    parts: list[Any] = [Written("{")]
    for number, (key, value) in enumerate(pairs):
        between = ", " if number else ""
        parts += (Written(f"{between}{json.dumps(key)}: "), value)
    return [*parts, Written("}")]


def _list_parts(values: Iterable[Any]) -> list[Any]:
    """A list as JSON texts with its values between them."""
    parts: list[Any] = [Written("[")]
    for number, value in enumerate(values):
        parts += (Written(", " if number else ""), value)
    return [*parts, Written("]")]


class Values:
    """The values of one file."""

    def __init__(self, texts: Texts, trace_name: str = TRACE_NAME) -> None:
        """Start by learning from values. `trace_name` is the name that the trace has
        afterwards."""
        self._texts = texts
        self._names = texts.names
        self._trace_name = trace_name
        self._text = lru_cache(MAX_CACHED_TEXTS)(texts.learn)
        self.variables: Counter[str] = Counter()  # of environments that were removed

    def finish(self) -> None:
        """End learning: from now on, values are scrubbed with everything that was
        learned."""
        self._text = lru_cache(MAX_CACHED_TEXTS)(self._texts.scrub)
        self.variables.clear()

    def metadata(self, keys: Pairs) -> Pairs:
        """The keys around traceEvents and their values, scrubbed."""
        scrubbed = Pairs()
        for key, value in keys:
            new_key = self._text(key)
            kind = kind_in_metadata(key, is_top=True)
            scrubbed.append((new_key, self._member(kind, key, value, in_metadata=True)))
        return scrubbed

    def scrubbed(self, value: Any, in_metadata: bool = False) -> Any:
        """Scrub an event, or any value whose key says nothing about it. An object or
        list that looks like the environment of a process loses all of its variables."""
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
                if _is_environment_dump(value):
                    return self._without(value)
                return [self.scrubbed(item, in_metadata) for item in value]
        return value

    def _members(self, pairs: Pairs, in_metadata: bool) -> Pairs:
        """The members of an object, with private keys and values replaced."""
        scrubbed = Pairs()
        for key, value in pairs:
            kind = (
                kind_in_metadata(key, is_top=False) if in_metadata else kind_of_key(key)
            )
            new_value = self._member(kind, key, value, in_metadata)
            scrubbed.append((self._text(key), new_value))
        return scrubbed

    def _member(
        self, kind: KeyKind | None, key: str, value: Any, in_metadata: bool
    ) -> Any:
        """Scrub the value of one key. `kind` says what the key tells about it; None for
        nothing."""
        if kind is None:
            return self.scrubbed(value, in_metadata)
        return self._of_kind(kind, key, value, in_metadata)

    def _of_kind(self, kind: KeyKind, key: str, value: Any, in_metadata: bool) -> Any:
        """Scrub the value of a key that tells what it is, such as a user or a secret.

        A text is replaced as its kind demands. Lists of users, hosts and folders are
        scrubbed item by item. Other lists and objects are removed as a whole, after
        learning from them.
        """
        if value is None or isinstance(value, bool) or value == "":
            return value
        if isinstance(value, Digits):
            is_private = kind is KeyKind.OTHER or secrecy(key) is Secrecy.STRONG
            return REMOVED if is_private else value
        if isinstance(value, str):
            return self._scrub_text_of_kind(kind, key, value)
        if kind is KeyKind.ENVIRONMENT:
            return self._without(value)
        if kind in (KeyKind.USER, KeyKind.HOST, KeyKind.FOLDER, KeyKind.MAYBE):
            if isinstance(value, Pairs):
                return self.scrubbed(value, in_metadata)
            return [self._of_kind(kind, key, item, in_metadata) for item in value]
        self._learn_removed_value(kind, key, value)
        return REMOVED

    def _scrub_text_of_kind(self, kind: KeyKind, key: str, value: str) -> str:
        """Scrub a text whose key tells what it is: a user, a host, a secret, a folder,
        the name of the trace."""
        match kind:
            case KeyKind.USER:
                return self._names.user(value)
            case KeyKind.HOST:
                return self._names.host(value)
            case KeyKind.SECRET | KeyKind.MAYBE:
                if hides_value(key, value):
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

    def _learn_removed_value(
        self, kind: KeyKind, key: str, value: Pairs | list[Any]
    ) -> None:
        """Learn from a value that is removed as a whole, so that its content is found
        everywhere else too."""
        if isinstance(value, Pairs):
            for inner_key, item in value:
                inner_kind = kind_of_key(inner_key) or kind
                self._of_kind(inner_kind, inner_key, item, in_metadata=True)
            return
        self._texts.learn(" ".join(item for item in value if isinstance(item, str)))
        if kind is KeyKind.SECRET:
            for item in value:
                self._of_kind(kind, key, item, in_metadata=True)

    def _without(self, environment: Pairs | list[Any]) -> Pairs | list[Any]:
        """An environment without its variables: an empty object or list. The users,
        hosts and secrets in it are learned first."""
        if not isinstance(environment, Pairs):
            lines = [str(line) for line in environment]
            self.variables.update(line.partition("=")[0] for line in lines)
            self._texts.learn("\n".join(lines))
            return []
        for name, value in environment:
            self.variables[name] += 1
            kind = kind_of_key(name)
            if kind in (KeyKind.USER, KeyKind.HOST, KeyKind.SECRET, KeyKind.MAYBE):
                self._of_kind(kind, name, value, in_metadata=True)
            elif isinstance(value, str) and not isinstance(value, Digits):
                self._texts.learn(value)
        return Pairs()


def _is_environment_dump(values: list[Any]) -> bool:
    """Whether a list has the form `NAME=value` that `env` prints, with two variables
    that every environment has."""
    names = set()
    for value in values:
        if not isinstance(value, str) or not ASSIGNMENT.match(value):
            return False
        names.add(value.partition("=")[0])
    return len(names & TELLING) > 1
