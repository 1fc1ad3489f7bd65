"""Events -> the text of a file, in one of the forms that writers give it."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from fuzz import words
from fuzz.program import Event, program

HEADS = (
    '{"traceEvents":',
    '{"traceEvents": ',
    '{\n  "schemaVersion": 1,\n  "traceEvents": ',
    '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", '
    '"numSms": 108, "computeMajor": 8, "computeMinor": 0}], "traceEvents": ',
    '{"a":{"traceEvents":[1]},"traceEvents":',
    '{"x":"y\\"traceEvents\\": [", "traceEvents" : ',
    '{"distributedInfo": {"rank": 1, "world_size": 8}, "trace_id": "F", "traceEvents": ',
    '{"traceEvents2":[{"ph":"X"}],"traceEvents":',
    '{"": null, "[": "{", "traceEvents"\n:\n',
)
TAILS = (
    *(
        "}",
        "\n}",
        "\n}\n",
        ',"z":1}',
        ' , "q":[{"ph":"X"}]}',
        ',\n  "traceName": "a/b.json"\n}',
    ),
    *(
        ', "deviceProperties": [{"id": 0, "name": "A"}, {"id": 1, "name": "A"}]}',
        ',"a":"}{{b"}',
    ),
    *(
        ',"displayTimeUnit": "ms", "baseTimeNanoseconds": 1712188800000000000}',
        ',"e":"]["}',
    ),
)
DEVICES = (
    "[]",
    "{}",
    "null",
    '[{"id": [1], "name": {}}]',
    '[{"id": "0"}]',
    '[{"id": 0}, 1]',
    "7",
)


class Document(NamedTuple):
    """The parts of a file; `lines`: each element is on a line of its own."""

    head: str  # up to the bracket that opens the list, which is a part of it
    elements: list[str]
    between: str
    tail: str  # from the bracket that closes the list on
    lines: bool

    def text(self) -> str:
        return self.head + self.between.join(self.elements) + self.tail


def document(rnd: Random) -> Document:
    lines = rnd.random() < 0.4
    elements = [_text(event, lines, rnd) for event in program(rnd)]
    if rnd.random() < 0.2:
        for _ in range(rnd.randint(1, 3)):
            elements.insert(rnd.randint(0, len(elements)), _no_event(rnd))
    head, tail = ("[", "]") if rnd.random() < 0.2 else _around(rnd)
    between = (
        rnd.choice((",\n", ",\n  "))
        if lines
        else rnd.choice((",", ", ", " , ", ",\n", "\n,\t"))
    )
    edge = "\n" if lines else rnd.choice(("", " ", "\n"))
    return Document(head + edge, elements, between, edge + tail, lines)


def _around(rnd: Random) -> tuple[str, str]:
    head, tail = rnd.choice(HEADS), rnd.choice(TAILS)
    if rnd.random() < 0.1:
        key = rnd.choice(
            ("deviceProperties", "distributedInfo", "a", "traceName", "traceEvents")
        )
        tail = f',"{key}":{rnd.choice((*DEVICES, words.value(rnd)))}{tail}'
    return f"{head}[", f"]{tail}"


def _text(event: Event, lines: bool, rnd: Random) -> str:
    """As torch writes it, as `json.dumps` does, or with blanks anywhere."""
    style = rnd.randrange(3)
    if style == 0 and not lines:
        return (
            "{\n    " + ", ".join(f'"{key}": {value}' for key, value in event) + "\n  }"
        )
    if style == 1 and not lines:
        blank = rnd.choice(("", " ", "\n", "\t", "\r\n"))
        inside = f"{blank},{blank}".join(
            f'"{key}"{blank}:{blank}{value}' for key, value in event
        )
        return f"{{{blank}{inside}{blank}}}"
    return "{" + ",".join(f'"{key}":{value}' for key, value in event) + "}"


def _no_event(rnd: Random) -> str:
    share = rnd.random()
    if share < 0.3:
        return "{}"
    if share < 0.4:
        return words.nested(rnd)
    return words.object_of(rnd) if share < 0.7 else words.value(rnd)
