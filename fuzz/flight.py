"""The kind of inputs that are dumps of the flight recorder: jobs that hang or not, hostile
values in them, and damaged files."""

from __future__ import annotations

import json
import pickle
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from fuzz.campaign import Kind
from fuzz.checks import check
from fuzz.commands import answer
from fuzz.damage import damaged
from tests.flight_dumps import WORLD, Job, TorchPickler
from tests.hostile import PAYLOADS

OPERATIONS = (
    "all_reduce",
    "all_gather",
    "barrier",
    "broadcast",
    "all_to_all",
    "send 0->1",
    "recv 1<-0",
    "recv 0<-7",
    "coalesced",
)
ODD: tuple[Any, ...] = (None, True, -1, 1 << 62, 0.5, "x", [], {}, [[]], ("a",), (1, 2))
TEXTS = tuple(text.encode("utf-8", "replace").decode() for text in PAYLOADS.values())
KEYS = (
    "record_id",
    "process_group",
    "profiling_name",
    "input_sizes",
    "state",
    "frames",
)


def dumps(seed: int, number: int) -> dict[str, bytes]:
    """The files of a job by name; always the same for the same numbers."""
    chance = Random(f"flight {seed}/{number}")
    job = Job(
        chance.choice((1, 2, 4, 9)),
        chance.choice(("nccl", "gloo", *TEXTS)),
        lists_members=chance.random() < 0.7,
    )
    ranks = list(job.entries)
    job.group(chance.choice(("half", *TEXTS)), *ranks[: max(1, len(ranks) // 2)])
    for _ in range(chance.choice((0, 1, 5, 40))):
        _issue(chance, job)
    for entries in job.entries.values():
        for entry in entries:
            if chance.random() < 0.02:
                entry[chance.choice(KEYS)] = chance.choice((*ODD, *TEXTS))
    return {
        _name(chance, rank): _written(chance, job.dump(rank))
        for rank in ranks
        if chance.random() < 0.95
    }


def _issue(chance: Random, job: Job) -> None:
    """A collective of all members, or of some of them."""
    group = chance.choice((WORLD, *job.members))
    operation = chance.choice(OPERATIONS)
    for rank in job.members[group]:
        if chance.random() < 0.95:
            job.issue(rank, operation, group, over=chance.random() < 0.8)


def _name(chance: Random, rank: int) -> str:
    return chance.choice((f"rank_{rank}", f"nccl_trace_rank_{rank}", f"dump{rank}"))


def _written(chance: Random, value: dict[str, Any]) -> bytes:
    form = chance.randrange(4)
    if form == 0:
        data = json.dumps(value).encode()
    elif form == 1:
        data = pickle.dumps(value, chance.choice((2, 3, 4, 5)))
    else:
        try:
            data = TorchPickler().pickle(value)
        except (TypeError, ValueError):  # torch has no such value
            data = pickle.dumps(value, 2)
    if chance.random() < 0.3:
        data = data[:2] + damaged(data[2:], chance)
    return data


def attempt(seed: int, number: int) -> str:
    """What became of it: the exit code. Raises WrongError for a wrong answer."""
    files = dumps(seed, number)
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, data in files.items():
            path = Path(folder, name)
            path.write_bytes(data)
            paths.append(str(path))
        if not paths:
            return "no file"
        told = answer(["hang", *paths])
        document = answer(["hang", *paths, "--json"])
    check(told.code == document.code, "text and JSON end differently")
    return f"exit code {told.code}"


def save(seed: int, number: int, what: str, place: Path) -> Path:
    folder = place.with_name(f"{place.name}-flight")
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in dumps(seed, number).items():
        (folder / name).write_bytes(data)
    return folder


KIND = Kind("flight", attempt, save)
