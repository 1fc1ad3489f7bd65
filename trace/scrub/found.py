"""What looks like a secret in a trace, reported without its value.

Only what occurs once per trace is examined: the keys around the events, and the names of events and
lanes. That takes no longer than searching them for a few words.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fusetui.trace.model.columns import Trace
from fusetui.trace.scrub.named import named_in
from fusetui.trace.scrub.secrets import is_secret
from fusetui.trace.scrub.tokens import kinds_in

OF_CODE = ("aten::", "void ", "_Z", "<built-in", "nn.Module", "torch/", "cuda", "hip", "triton_")
"""How most names begin. Such names contain no tokens, and they make up most of the text."""


def secrets_of(trace: Trace) -> tuple[str, ...]:
    """What looks like a secret in the keys and names of a trace: what it is called, not its
    value."""
    return secrets_in(trace.keys, (*trace.names, *(track.label for track in trace.tracks)))


def secrets_in(keys: Mapping[str, Any], names: Iterable[str]) -> tuple[str, ...]:
    """Names of keys whose values look like secrets, and kinds of tokens found elsewhere.

    `keys` are those around the events, `names` any texts. Each is listed once.
    """
    text = "\n".join(name for name in names if not name.startswith(OF_CODE))
    return tuple(dict.fromkeys([*_of_value("", keys), *_of_text(text)]))


def _of_value(key: str, value: Any) -> Iterator[str]:
    waiting = deque([(key, value)])
    while waiting:
        key, value = waiting.popleft()
        if is_secret(key, value):
            yield key
        elif isinstance(value, str):
            yield from _of_text(value)
        elif isinstance(value, Mapping):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += ((key, item) for item in value)


def _of_text(text: str) -> Iterator[str]:
    yield from kinds_in(text)
    for begin, end, name in named_in(text):
        if is_secret(name, text[begin:end]):
            yield name
