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

BETWEEN = "\n" * 5  # two texts: no secret goes on in the next
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
    texts = [name for name in names if not name.startswith(OF_CODE)]
    found = [*_of_keys(keys, texts)]
    text = BETWEEN.join(texts)
    found += kinds_in(text)
    found += (name for begin, end, name in named_in(text) if is_secret(name, text[begin:end]))
    return tuple(dict.fromkeys(found))


def _of_keys(keys: Mapping[str, Any], texts: list[str]) -> Iterator[str]:
    """Keys whose values look like secrets; adds all others that are texts to `texts`."""
    waiting = deque[tuple[str, Any]](keys.items())
    while waiting:
        key, value = waiting.popleft()
        if is_secret(key, value):
            yield key
        elif isinstance(value, str):
            texts.append(value)
        elif isinstance(value, Mapping):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += ((key, item) for item in value)
