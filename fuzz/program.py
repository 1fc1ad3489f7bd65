"""The events of a program that was profiled: threads, ops, launches, kernels, steps,
counters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from fuzz import words

Pair = tuple[str, str]
"""The text of a key, without quotes, and that of its value."""
Event = list[Pair]

BASES = (
    0,
    0,
    1_000,
    10**9,
    1712195495519689047,
    -5_000,
    2**43 * 1000 - 700,
    2**61 - 10**6,
)
"""Where times begin (ns): among them Unix time, and the edges of what is exact and what
is read."""
SPANS = (0, 1, 999, 50_000, 10**6, 10**6, 10**9, 10**15)
CPU_CATEGORIES = (
    "cpu_op",
    "cpu_op",
    "cpu_op",
    "python_function",
    "user_annotation",
    "Operator",
    "",
)
CALLS = ("cuda_runtime", "cuda_driver", "hip_runtime", "Runtime")
DEVICE_CATEGORIES = ("kernel", "kernel", "kernel", "gpu_memcpy", "gpu_memset", "Kernel")
LANE_CATEGORIES = (
    "gpu_user_annotation",
    "cuda_sync",
    "mtia_ccp_events",
    "cuda_profiler_range",
)
METADATA = (
    "process_name",
    "process_labels",
    "thread_name",
    "process_sort_index",
    "odd_name",
)
PAIRS = (("B", "E"), ("b", "e"), ("S", "F"))


class Program:
    """Writes about as many events as it is told, in the order in which a profiler
    does."""

    def __init__(self, rnd: Random, events: int) -> None:
        self.events: list[Event] = []
        self._rnd = rnd
        self._left = events
        self._base = rnd.choice(BASES)
        self._span = rnd.choice(SPANS)
        self._digits = rnd.choice((0, 3, 3, 3, 6))  # of microseconds, after the point
        self._launched: list[tuple[int, int]] = []  # correlations, and when
        self._next = rnd.choice((1, 1, 0, -3, 2**31 - 2, 2**63 - 3))

    def run(self) -> list[Event]:
        rnd = self._rnd
        for process in range(rnd.choice((1, 1, 1, 2, 3))):
            for thread in range(rnd.choice((1, 1, 2, 4))):
                where = self._thread(process + 1, thread + 1)
                self._ops(where, 0, self._span, rnd.choice((1, 3, 8)))
        self._steps()
        self._devices()
        for extra in (self._pairs, self._counters, self._metadata, self._others):
            if rnd.random() < 0.4:
                extra()
        if rnd.random() < 0.2:
            rnd.shuffle(self.events)
        return self.events

    def time(self, ns: int) -> str:
        """A time as a profiler writes it, with so many digits after the point."""
        if not self._digits:
            return str(ns // 1000)
        sign, ns = ("-" if ns < 0 else ""), abs(ns)
        more = "".join(self._rnd.choice("0159") for _ in range(self._digits - 3))
        return f"{sign}{ns // 1000}.{ns % 1000:03}{more}"

    def slice(
        self, name: str, category: str, where: Event, begin: int, dur: int, **args: Any
    ) -> None:
        self._left -= 1
        times = [("ts", self.time(self._base + begin)), ("dur", self.time(dur))]
        event = [
            ("ph", '"X"'),
            ("cat", json.dumps(category)),
            ("name", words.quoted(name, self._rnd)),
        ]
        event += [*where, *times]
        if args or self._rnd.random() < 0.3:
            event.append(("args", self._args(args)))
        self.events.append(event)

    def _args(self, known: dict[str, Any]) -> str:
        pairs = [
            f'"{key.replace("_", " ")}": {json.dumps(known[key])}' for key in known
        ]
        for _ in range(self._rnd.choice((0, 0, 1, 3))):
            pairs.append(f'"{self._rnd.choice(words.ARGS)}": {words.value(self._rnd)}')
        return "{" + ", ".join(pairs) + "}"

    def _thread(self, pid: int, tid: int) -> Event:
        odd = self._rnd.random() < 0.1
        names = (
            (words.value(self._rnd), words.value(self._rnd))
            if odd
            else (str(pid), str(tid))
        )
        return [("pid", names[0]), ("tid", names[1])]

    def _ops(self, where: Event, begin: int, end: int, levels: int) -> None:
        """Ops one after the other, each with others inside; some reach too far."""
        rnd = self._rnd
        while self._left > 0 and begin <= end:
            length = rnd.choice(
                (0, 0, 1, (end - begin) // 2, (end - begin) // 3, end - begin)
            )
            length += rnd.choice((0, 0, 0, 0, 0, 0, 0, length + 1))
            self._op(where, begin, length)
            if levels and rnd.random() < 0.5:
                self._ops(
                    where,
                    begin + rnd.choice((0, 0, length // 4)),
                    begin + length,
                    levels - 1,
                )
            begin += length + rnd.choice((0, 0, 1, length))
            if rnd.random() < 0.3:
                return

    def _op(self, where: Event, begin: int, length: int) -> None:
        rnd = self._rnd
        if rnd.random() < 0.3:
            number, self._next = self._next, self._next + rnd.choice((1, 1, 1, 0))
            self._launched.append((number, begin))
            self.slice(
                "cudaLaunchKernel",
                rnd.choice(CALLS),
                where,
                begin,
                length,
                correlation=number,
            )
        elif rnd.random() < 0.2:
            self.slice(
                rnd.choice(words.NAMES), "cpu_op", where, begin, length,
                External_id=rnd.randint(0, 5), Input_Dims=[[rnd.randint(0, 9), 8], [8, 16]],
                Input_type=["float", "c10::BFloat16"], Sequence_number=rnd.randint(-1, 3),
            )  # fmt: skip
        else:
            self.slice(
                rnd.choice(words.NAMES),
                rnd.choice(CPU_CATEGORIES),
                where,
                begin,
                length,
            )

    def _steps(self) -> None:
        rnd = self._rnd
        steps = rnd.choice((0, 0, 1, 3, 6))
        where = self._thread(1, 1)
        category = rnd.choice(("user_annotation", "user_annotation", "cpu_op"))
        for number in range(steps):
            begin = self._span * number // steps
            self.slice(
                f"ProfilerStep#{number}", category, where, begin, self._span // steps
            )

    def _devices(self) -> None:
        """Kernels of the launches, some of them lost, some of nobody."""
        rnd = self._rnd
        places = [
            self._thread(rnd.choice((0, 0, 1, 9)), 7 + n)
            for n in range(rnd.choice((1, 2, 4)))
        ]
        for number, called in self._launched:
            for _ in range(rnd.choice((0, 1, 1, 1, 2))):
                begin = called + rnd.choice((0, 1, 5, self._span // 3, -4))
                self._kernel(rnd.choice(places), begin, number)
        for _ in range(rnd.choice((0, 0, 1, 4))):
            self._kernel(
                rnd.choice(places), rnd.randint(0, self._span), rnd.randint(-1, 9)
            )
        for _ in range(rnd.choice((0, 0, 2))):
            dur = self._span // rnd.randint(1, 9)
            category = rnd.choice(LANE_CATEGORIES)
            self.slice(
                "a", category, rnd.choice(places), 0, dur, External_id=rnd.randint(0, 3)
            )

    def _kernel(self, where: Event, begin: int, correlation: int) -> None:
        rnd = self._rnd
        dur = rnd.choice((0, 1, 5, self._span // 7, self._span // 2))
        more = (
            {"External_id": rnd.choice((correlation, rnd.randint(0, 5)))}
            if rnd.random() < 0.5
            else {}
        )
        self.slice(
            rnd.choice(words.KERNELS), rnd.choice(DEVICE_CATEGORIES), where, begin, dur,
            correlation=correlation, grid=[rnd.choice((1, 64, 0, -1)), 1, 1], block=[128, 1, 1],
            **more,
        )  # fmt: skip

    def _event(self, phase: str, *pairs: Pair) -> None:
        self._left -= 1
        ts = self.time(self._base + self._rnd.randint(0, max(self._span, 0)))
        self.events.append(
            [("ph", f'"{phase}"'), ("ts", ts), *self._thread(1, 1), *pairs]
        )

    def _pairs(self) -> None:
        rnd = self._rnd
        for _ in range(rnd.randint(1, 8)):
            begin, end = rnd.choice(PAIRS)  # of characters
            for phase in rnd.choice(
                (begin + end, begin, end, begin + begin + end + end)
            ):
                number = ("id", rnd.choice(("1", '"0x7"', "null", words.value(rnd))))
                name = (
                    "name",
                    rnd.choice(('"a"', '"ProfilerStep#1"', words.value(rnd))),
                )
                self._event(
                    phase, name, ("cat", rnd.choice(('"c"', '"cpu_op"'))), number
                )

    def _counters(self) -> None:
        rnd = self._rnd
        for _ in range(rnd.randint(1, 8)):
            names = rnd.choices("abc", k=2)
            args = ", ".join(f'"{name}": {words.number(rnd)}' for name in names)
            self._event("C", ("name", '"queue"'), ("args", f"{{{args}}}"))
            totals = f'"Total Allocated": {words.number(rnd)}, "Total Reserved": {rnd.randint(0, 99)}'
            kind = rnd.choice(("0", "1", "1", "20", '"a"'))
            block = (
                f'"Addr": {len(names[0])}, "Bytes": {8 if names[0] < names[1] else -8}'
            )
            device = f'"Device Type": {kind}, "Device Id": 0, {block}'
            self._event(
                "i", ("name", '"[memory]"'), ("args", f"{{{device}, {totals}}}")
            )

    def _metadata(self) -> None:
        rnd = self._rnd
        for _ in range(rnd.randint(1, 6)):
            name = rnd.choice(('"thread 1 (main)"', '"GPU 0"', words.value(rnd)))
            key = rnd.choice(("name", "labels", "sort_index"))
            kind = f'"{rnd.choice(METADATA)}"'
            self._event("M", ("name", kind), ("args", f'{{"{key}": {name}}}'))

    def _others(self) -> None:
        rnd = self._rnd
        for _ in range(rnd.randint(1, 6)):
            phase = rnd.choice(
                ("s", "f", "t", "i", "I", "n", "N", "P", "v", "R", "c", "(", "unknown")
            )
            self._event(
                phase, ("name", '"ac2g"'), ("cat", '"ac2g"'), ("id", words.value(rnd))
            )


def program(rnd: Random) -> list[Event]:
    """Events of which most files have few, some hundreds."""
    events = rnd.choice((0, 1, 2, 3, 3, 5, 5, 8, 8, 12, 12, 20, 20, 40, 100))
    return list(_odd(Program(rnd, events).run(), rnd))


def _odd(events: list[Event], rnd: Random) -> Iterator[Event]:
    """With odd values in some fields, fields without a meaning, in another order."""
    share = rnd.choice((0, 0, 0.1, 0.5))
    for event in events:
        if rnd.random() < share:
            for _ in range(rnd.randint(1, 2)):
                _make_odd(event, rnd)
        yield event


def _make_odd(event: Event, rnd: Random) -> None:
    at = rnd.randrange(len(event)) if event else 0
    match rnd.randrange(6):
        case 0 | 1 if event:
            event[at] = (event[at][0], words.value(rnd))
        case 2 if event:
            del event[at]
        case 3:
            event.insert(at, (rnd.choice(words.KEYS), words.value(rnd)))
        case 4:
            event.insert(0, (rnd.choice(("tts", "x", "")), words.value(rnd)))
        case _:
            rnd.shuffle(event)
