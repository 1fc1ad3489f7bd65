"""The kind of inputs that are memory snapshots: as torch writes them, hostile ones, and
damaged."""

from __future__ import annotations

import io
import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from fuzz.campaign import Kind
from fuzz.checks import check
from fuzz.commands import answer
from fuzz.damage import cut
from fuzz.limits import check_memory, limited
from fuzz.packing import packed
from tests.hostile import PAYLOADS
from tests.snapshots import MB, Machine, forward, train

from fusetui.trace.model.errors import TraceError
from fusetui.trace.read.foreign import is_pickle
from fusetui.trace.snapshot.columns import (
    BlockState,
    MemoryAction,
    MemoryEvents,
    Snapshot,
)
from fusetui.trace.snapshot.reading import read_snapshot

ACTIONS = tuple(one.name.lower() for one in MemoryAction)
STATES = tuple(one.name.lower() for one in BlockState)
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    1 << 62,
    1 << 64,
    0.5,
    "x",
    (),
    [],
    {},
    (0, 0),
    [[]],
    b"x",
)
TEXTS = (
    *("N/A", "", "1/0", "x" * 300),
    *(text.encode("utf-8", "replace").decode() for text in PAYLOADS.values()),
)
Entry = dict[str, Any]
ASKED: tuple[tuple[str, ...], ...] = (
    ("--json",),
    ("--by", "module", "--at", "end"),
    ("--at", "oom", "--top", "3"),
    ("--at", "12us", "--format", "csv"),
    ("--by", "category", "--at", "1748730219000300", "--json"),
)


def snapshot(seed: int, number: int) -> bytes:
    """Always the same for the same numbers."""
    rnd = Random(f"snapshot {seed}/{number}")
    value = _value(rnd) if rnd.random() < 0.5 else _run(rnd)
    for _ in range(rnd.choice((0, 0, 0, 1, 3))):
        _plant(rnd, value)
    data = pickle.dumps(value, rnd.choice((2, 3, 4, 4, 5)))
    for _ in range(rnd.choice((0, 0, 0, 1, 1, 2, 5))):
        data = data[:2] + rnd.choice(CHANGES)(data[2:], rnd)
    return packed(data, rnd) if rnd.random() < 0.1 else data


def _value(rnd: Random) -> Any:
    frames = [_frame(rnd, n) for n in range(rnd.choice((1, 3, 300)))]
    stacks = [rnd.choices(frames, k=rnd.choice((0, 1, 2, 30))) for _ in range(20)]
    form = rnd.randrange(4)
    events = list(_events(rnd, stacks, form))
    segments = [_segment(rnd, stacks) for _ in range(rnd.choice((0, 1, 5)))]
    value: Any = {
        "segments": segments,
        "device_traces": [[], events][rnd.randrange(2) :],
    }
    value["external_annotations"] = [
        {
            "stage": rnd.choice(("START", "END")),
            "name": rnd.choice(TEXTS),
            "device": 0,
            "time_us": n,
        }
        for n in range(rnd.choice((0, 3)))
    ]
    value["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": "", "roundup": {"1": 0}}
    return value


def _run(rnd: Random) -> Any:
    """Of an allocator that works as torch's does, and often runs out of memory."""
    machine = Machine(
        total=rnd.choice((1, 4, 40)) * 100 * MB, expandable=rnd.random() < 0.3
    )
    if rnd.random() < 0.5:
        train(
            machine,
            rnd.randrange(6),
            leaking=rnd.choice((0, MB)),
            late=rnd.random() < 0.5,
        )
    held: list[int | None] = []
    for _ in range(rnd.choice((0, 5, 60))):
        if held and rnd.random() < 0.4:
            machine.free(
                held.pop(rnd.randrange(len(held))), complete=rnd.random() < 0.9
            )
        else:
            size, pool = int(2 ** rnd.uniform(0, 28)), (0, rnd.choice((0, 0, 0, 1, 2)))
            held.append(
                machine.alloc(size, forward(rnd.randrange(9)), rnd.randrange(2), pool)
            )
        if rnd.random() < 0.05:
            machine.release()
    return machine.snapshot(
        lost=rnd.choice((0, 0, rnd.randrange(len(machine.events) + 1)))
    )


def _frame(rnd: Random, number: int) -> Entry:
    return {
        "name": f"f{number}",
        "filename": rnd.choice(("??", "a.py", *TEXTS)),
        "line": number,
    }


def _events(rnd: Random, stacks: list[list[Entry]], form: int) -> Iterator[Entry]:
    shared = rnd.random() < 0.5
    for number in range(rnd.choice((0, 1, 15, 40, 200, 2500))):
        yield (event := {"action": rnd.choice(ACTIONS), "addr": rnd.getrandbits(47)})
        event |= {"size": rnd.getrandbits(rnd.randrange(1, 40)), "stream": 0}
        event |= {"time_us": 1748730219000000 + number} if form else {}
        if form > 1:
            event |= {
                "compile_context": "".join(("N/", "A")),
                "user_metadata": rnd.choice(TEXTS),
            }
        if form > 2:
            event["pool_id"] = (0, rnd.randrange(9)) if rnd.random() < 0.5 else (0, 0)
        if rnd.random() < 0.8:
            stack = rnd.choice(stacks)
            event["frames"] = stack if shared else list(stack)


def _segment(rnd: Random, stacks: list[list[Entry]]) -> Entry:
    blocks = [
        {
            "address": n << 20,
            "size": 1 << 20,
            "requested_size": 9,
            "state": rnd.choice(STATES),
        }
        | {"frames": rnd.choice(stacks)}
        for n in range(rnd.choice((0, 1, 4)))
    ]
    sizes = {
        "total_size": 4 << 20,
        "allocated_size": 9,
        "active_size": 9,
        "requested_size": 9,
    }
    place = {
        "device": 0,
        "address": 0,
        "stream": 0,
        "segment_type": rnd.choice(("large", "small")),
    }
    rest = {
        "segment_pool_id": (0, rnd.randrange(2)),
        "is_expandable": rnd.random() < 0.5,
    }
    return place | sizes | rest | {"frames": rnd.choice(stacks), "blocks": blocks}


def _plant(rnd: Random, value: Any) -> None:
    """Something odd in the place of a value somewhere below."""
    while True:
        key = rnd.choice([*value] if isinstance(value, dict) else range(len(value)))
        inner = value[key]
        if not isinstance(inner, dict | list) or not inner or rnd.random() < 0.1:
            value[key] = rnd.choice((*ODD, value))
            return
        value = inner


def _flipped(data: bytes, rnd: Random) -> bytes:
    found = bytearray(data)
    for _ in range(rnd.choice((1, 1, 3, 20)) if data else 0):
        found[rnd.randrange(len(found))] ^= 1 << rnd.randrange(8)
    return bytes(found)


def _without(data: bytes, rnd: Random) -> bytes:
    begin = rnd.randint(0, len(data))
    return data[:begin] + data[begin + rnd.choice((1, 2, 5, 50)) :]


def _inserted(data: bytes, rnd: Random) -> bytes:
    begin = rnd.randint(0, len(data))
    piece = data[begin : begin + rnd.choice((1, 9, 999))]
    return data[:begin] + rnd.choice((*HOSTILE, rnd.randbytes(3), piece)) + data[begin:]


HOSTILE = (
    b"r\xff\xff\xff\x7f",
    b"r\x00\xe1\xf5\x05",
    b"j\xff\xff\xff\xff",
    b"X\xff\xff\xff\xff",
    b"\x8b\xff\xff\xff\x7f",
    b"\x8a\xff",
    b"cos\nsystem\n",
    b"\x8c\x02os\x8c\x06system\x93",
    b"R",
    b"]" * 100_000,
    b"}" * 100_000,
    b"(" * 100_000,
    b"N" * 100_000,
    b")\x85" * 50_000,
    b"]\x94h\x00a",
    b"\x95\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"0",
    b"2",
    b".",
)
CHANGES: tuple[Callable[[bytes, Random], bytes], ...] = (
    *(_flipped, _flipped, _without, _inserted, _inserted, cut),
)


def attempt(seed: int, number: int) -> str:
    data = snapshot(seed, number)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.pickle"
        path.write_bytes(data)
        with limited("answer"):
            answer(["memory", str(path), *ASKED[number % len(ASKED)]])
        check_memory()
        try:
            with limited("read"):
                found = read_snapshot(str(path))
        except TraceError as error:
            check_memory()
            text = str(error)
            check(text.endswith((".", "?")) and "\n" not in text, "no sentence", text)
            return "refused"
        check_memory()
    check_columns(found)
    value = plain(data) if is_pickle(data) else None
    if value is None:
        return "another way"
    check_same(found, value)
    return "read"


class Plain(pickle._Unpickler):
    """Python's own, not that in C, which takes as much memory as it is told to."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}")


def plain(data: bytes) -> Any:
    """None where it finds nothing."""
    try:
        return Plain(io.BytesIO(data)).load()
    except Exception:
        return None


def check_columns(found: Snapshot) -> None:
    """Numbers of rows are those of rows."""
    tables: tuple[Any, ...] = (found.segments, found.blocks, *found.events)
    for table in tables:
        check((table.stack < len(found.stacks)).all(), "a stack that is none")
        for name in table.__struct_fields__:
            column = getattr(table, name)
            check(
                isinstance(column, int) or len(column) == len(table),
                "columns differ",
                name,
            )
    check((found.blocks.segment < len(found.segments)).all(), "a segment that is none")
    check((found.stacks.frame < len(found.stacks.frames)).all(), "a frame that is none")


def check_same(found: Snapshot, value: Any) -> None:
    """Every event and block is what Python's pickle finds."""
    root = {"segments": value} if isinstance(value, list) else value
    traces = [(n, one) for n, one in enumerate(root.get("device_traces", ())) if one]
    check([one.device for one in found.events] == [n for n, _ in traces], "devices")
    for events, (_, entries) in zip(found.events, traces, strict=True):
        check(list(_rows(found, events)) == list(map(_event, entries)), "events")
    sizes = [_of(one, "total_size") for one in root["segments"]]
    check(found.segments.total_size.tolist() == sizes, "segments")


def _rows(found: Snapshot, events: MemoryEvents) -> Iterator[tuple[Any, ...]]:
    for row in range(len(events)):
        numbers = (
            events.addr,
            events.size,
            events.stream,
            events.time_us,
            events.device_free,
        )
        texts = (events.compile_context, events.user_metadata)
        yield (
            MemoryAction(events.action[row]).name.lower(),
            *(int(column[row]) for column in numbers),
            *(
                found.strings[column[row]] if column[row] >= 0 else None
                for column in texts
            ),
            found.pools[events.pool[row]] if events.pool[row] >= 0 else None,
            [frame[:2] for frame in found.stacks[int(events.stack[row])]],
        )


def _event(entry: Entry) -> tuple[Any, ...]:
    texts = (entry.get(key) for key in ("compile_context", "user_metadata"))
    pool = entry.get("pool_id")
    is_pair = isinstance(pool, tuple) and [type(one) for one in pool] == [int, int]
    return (
        entry["action"] if entry["action"] in ACTIONS else "other",
        *(
            _of(entry, key)
            for key in ("addr", "size", "stream", "time_us", "device_free")
        ),
        *(text if isinstance(text, str) else None for text in texts),
        pool if is_pair else None,
        [(one.get("name", ""), one["filename"]) for one in entry.get("frames", ())],
    )


def _of(entry: Entry, key: str) -> int:
    return int(entry.get(key, -1))


def save(seed: int, number: int, what: str, place: Path) -> Path:
    path = place.with_name(f"{place.name}.pickle")
    path.write_bytes(snapshot(seed, number))
    return path


KIND = Kind("snapshot", attempt, save)
