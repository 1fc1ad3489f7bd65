"""The kind of inputs that hold a secret: the warning names it, and scrub leaves nothing
of it."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from fuzz.campaign import Kind
from fuzz.checks import check
from fuzz.known import PLACES, Secret, secret
from fuzz.limits import limited
from fuzz.oracle_of_secrets import detected
from fuzz.words import KERNELS, NAMES

from fusetui.trace.read.source import open_source
from fusetui.trace.scrub.detect import find_secret_names
from fusetui.trace.scrub.document import ScrubbedDocument
from fusetui.trace.scrub.secrets import FORM

FORM_INSIDE = re.compile(FORM)
PIECE = 7  # characters of a secret that may be left by chance
EVENT = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1.5, "dur": 2}


def attempt(seed: int, number: int) -> str:
    rnd = Random(f"{seed}/{number}")
    hidden = secret(rnd)
    place = rnd.choice(list(PLACES))
    text = PLACES[place](hidden.text)
    if rnd.random() < 0.3:
        # one more level of escapes
        text = json.dumps({"note": text}, ensure_ascii=False)
    what = f"{hidden.kind} {place}: {text[:300]}"
    _check_warned(hidden, text, what)
    name, document = _planted(text, rnd)
    _check_scrubbed(hidden, document, f"{name}, {what}")
    return "scrubbed"


def _check_warned(hidden: Secret, text: str, what: str) -> None:
    with limited("warning"):
        warned = find_secret_names({"note": text}, ())
    known = [kind for kind, _ in detected(text)]
    check(warned or not known, "detect-secrets warns", (known, what))
    check(warned, "no warning", what)
    check(
        not any(hidden.private in name for name in warned), "the warning tells it", what
    )


def _planted(text: str, rnd: Random) -> tuple[str, dict[str, Any]]:
    """A document with the text in one of its places."""
    deep = {"a": [{"b": text}]}
    label = {"ph": "M", "pid": 1, "name": "process_labels", "args": {"labels": text}}
    lane = {"ph": "M", "pid": 1, "name": "thread_name", "args": {"name": text}}
    places: dict[str, dict[str, Any]] = {
        "metadata": {"note": text},
        "metadata in depth": {"metadata": deep},
        "key around the events": {text: 1},
        "stack frame": {"stackFrames": {"1": {"name": text, "category": "p"}}},
        "name": _event(name=text),
        "category": _event(cat=text),
        "argument": _event(args={"x": text}),
        "argument in depth": _event(args=deep),
        "key of an argument": _event(args={text: 1}),
        "concrete input": _event(args={"Concrete Inputs": ["", text]}),
        "lane": {"traceEvents": [lane]},
        "label": {"traceEvents": [label]},
    }
    place = rnd.choice(list(places))
    document = {"traceEvents": [], **places[place]}
    others = [{**EVENT, "name": rnd.choice(KERNELS + NAMES)} for _ in range(3)]
    return place, {**document, "traceEvents": [*document["traceEvents"], *others]}


def _event(**fields: Any) -> dict[str, Any]:
    return {"traceEvents": [{**EVENT, "name": "a", **fields}]}


def _check_scrubbed(hidden: Secret, document: dict[str, Any], what: str) -> None:
    with limited("scrub"):
        once = _scrubbed(document)
    left = list(_texts(once))
    whole = "\n".join(left)
    found = [piece for piece in _pieces(hidden.private) if piece in whole]
    check(not found, "left", (found, what, whole[:600]))
    for text in left:
        for kind, value in detected(text):
            check(
                FORM_INSIDE.search(value),
                "detect-secrets finds more",
                (kind, value, what),
            )
    check(
        find_secret_names(once, left) == (),
        "a warning afterwards",
        (find_secret_names(once, left), what),
    )
    check(_scrubbed(once) == once, "scrubbed twice", what)
    kept = [event["name"] for event in document["traceEvents"][-3:]]
    check(
        [event["name"] for event in once["traceEvents"][-3:]] == kept,
        "other names",
        what,
    )


def _pieces(private: str) -> Iterator[str]:
    """Parts of a secret that are no words."""
    parts = (private[n : n + PIECE] for n in range(len(private) - PIECE + 1))
    return (part for part in parts if any(char.isdigit() for char in part))


def _scrubbed(document: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.json"
        path.write_text(json.dumps(document))
        scrubbed = ScrubbedDocument(open_source(str(path)))
        scrubbed.learn()
        found: dict[str, Any] = json.loads(b"".join(scrubbed.text()))
    return found


def warned_and_left(keys: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    """What is warned of in these keys, and which of their values stay."""
    once = _scrubbed({**keys, "traceEvents": []})
    return find_secret_names(keys, ()), "".join(
        v for k, v in once.items() if keys.get(k) == v
    )


def _texts(value: Any) -> Iterator[str]:
    """All strings in a value, keys too."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str):
        yield value


def save(seed: int, number: int, _what: str, place: Path) -> Path:
    rnd = Random(f"{seed}/{number}")
    hidden = secret(rnd)
    path = place.with_name(f"{place.name}.json")
    path.write_text(json.dumps({"note": PLACES[rnd.choice(list(PLACES))](hidden.text)}))
    return path


KIND = Kind("scrub", attempt, save)
