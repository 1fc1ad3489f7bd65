"""The kind of inputs that are one thing many times: what could take more than linear
time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from itertools import count, takewhile
from pathlib import Path
from typing import NamedTuple

from fuzz import questions
from fuzz.campaign import Kind
from fuzz.checks import check_trace
from fuzz.limits import check_memory, limited
from fuzz.losses import check_losses, check_refused
from fuzz.sizes import sized
from tests.finding import find

from fusetui.trace import TraceError, open_trace

SIZE = 10_000_000  # bytes of one input


class Family(NamedTuple):
    element: Callable[[int], str]  # number -> text
    between: str = ","
    end: str = "]"


def _event(
    name: str = "a", category: str = "cpu_op", pid: int = 1, tid: int = 1, dur: int = 1
) -> str:
    """With a place for the time."""
    known = f'"cat":"{category}","name":"{name}","pid":{pid},"tid":{tid}'
    return f'{{"ph":"X",{known},"ts":%d,"dur":{dur}}}'


FAMILIES = {
    "nested": Family(lambda n: _event(dur=10**7 - 2 * n) % n),
    "overlapping": Family(lambda n: _event(category="kernel", dur=100_000) % n),
    "never ended": Family(
        lambda n: f'{{"ph":"B","name":"a","pid":1,"tid":1,"ts":{n}}}'
    ),
    "never begun": Family(
        lambda n: f'{{"ph":"E","name":"a","pid":1,"tid":1,"ts":{n}}}'
    ),
    "threads": Family(lambda n: _event(tid=n) % n),
    "GPUs": Family(lambda n: _event(category="kernel", pid=n, tid=n) % n),
    "names": Family(lambda n: _event(f"ampere_sgemm_{n}", "kernel") % n),
    "long names": Family(
        lambda n: _event("void f<" + "g<int, " * 3000 + f"{n}>", "kernel") % n
    ),
    "steps": Family(lambda n: _event(f"ProfilerStep#{n}", "user_annotation") % n),
    "counters": Family(
        lambda n: f'{{"ph":"C","name":"c{n}","ts":{n},"args":{{"v":{n}}}}}'
    ),
    "empty objects": Family(lambda n: "{}"),
    "numbers": Family(lambda n: "1"),
    "brackets": Family(lambda n: "[", ""),
    "unknown first key": Family(
        lambda n: f'{{"tts":1,"ph":"X","name":"a","ts":{n if n else "NaN"}}}'
    ),
    "times as text": Family(lambda n: f'{{"tts":1,"ph":"X","name":"a","ts":"{n}"}}'),
    "phase as number": Family(lambda n: f'{{"ph":5,"ts":{n}}}'),
    "not a number": Family(lambda n: f'{{"ph":"X","ts":{n},"args":{{"a":NaN}}}}'),
    "unquoted phase": Family(lambda n: f'{{"ph":X,"ts":{n}}}'),
    "surrogates": Family(lambda n: f'{{"ph":"\\ud800","ts":{n}}}'),
    "odd quotes": Family(lambda n: f'{{"ph":"X","name":"a"b","ts":{n}}}'),
    "even quotes": Family(lambda n: f'{{"ph":"X","name":"a"b"","ts":{n}}}'),
    "no commas": Family(lambda n: f'{{"ph":"X","name":"a","ts":{n}}}', " "),
    "never closed": Family(lambda n: '{"ph":', "", ""),
    "one bracket too many": Family(lambda n: f'{{"ph":"X","ts":{n}}}]'),
}


def text(family: Family, size: int) -> bytes:
    """A list of about so many bytes."""
    return (
        b"["
        + family.between.join(_elements(family, size)).encode()
        + family.end.encode()
    )


def _elements(family: Family, size: int) -> Iterator[str]:
    left = [size]

    def fits(element: str) -> bool:
        left[0] -= len(element) + len(family.between)
        return left[0] >= 0

    return takewhile(fits, map(family.element, count()))


def examine_family(name: str, size: int = SIZE) -> str:
    """What became of it, as in examine. What fails raises."""
    data = text(FAMILIES[name], size)
    with tempfile.TemporaryDirectory() as folder, sized("usual"):
        path = Path(folder) / "trace.json"
        path.write_bytes(data)
        try:
            with limited(f"open ({name})"):
                trace = open_trace(str(path), cached=False)
        except TraceError as error:
            check_memory()
            check_refused(str(error), data)
            return "refused"
        for ask in (questions.ask_summary, questions.ask_kernels, questions.ask_ops):
            with limited(f"{ask.__name__} ({name})"):
                ask(trace)
        with limited(f"search ({name})"):
            find(trace, "a")
    check_memory()
    check_trace(trace)
    return check_losses(trace, data)


def attempt(_seed: int, number: int) -> str:
    return examine_family(list(FAMILIES)[number % len(FAMILIES)])


def save(_seed: int, number: int, _what: str, place: Path) -> Path:
    path = place.with_name(f"{place.name}.json")
    path.write_bytes(text(list(FAMILIES.values())[number % len(FAMILIES)], SIZE))
    return path


KIND = Kind("large", attempt, save, batch=1)
