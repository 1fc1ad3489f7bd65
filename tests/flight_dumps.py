"""Dumps of the flight recorder as torch writes them: a `Job` issues collectives rank by
rank, and is written as one pickle for each rank.

Source of the keys: torch/csrc/distributed/c10d/FlightRecorder.hpp.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

TORCH = "/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"
WORLD = "default_pg"


class Job:
    """What each rank issued. `lists_members`: as NCCL, not gloo, does."""

    def __init__(
        self, ranks: int, library: str = "nccl", *, lists_members: bool = True
    ) -> None:
        self.library = library
        self.lists_members = lists_members
        self.members: dict[str, tuple[int, ...]] = {WORLD: tuple(range(ranks))}
        self.entries: dict[int, list[dict[str, Any]]] = {
            rank: [] for rank in range(ranks)
        }
        self.status: dict[int, dict[str, dict[str, int]]] = {}  # pg_status by rank
        self._issued: dict[tuple[int, str, bool], int] = {}

    def group(self, name: str, *ranks: int) -> None:
        """A group of these ranks."""
        self.members[name] = ranks

    def issue(
        self,
        rank: int,
        operation: str = "all_reduce",
        group: str = WORLD,
        *,
        over: bool = True,
        sizes: list[list[int]] | None = None,
        dtype: str = "Float",
        line: int = 10,
        **fields: Any,
    ) -> dict[str, Any]:
        """One collective, send or receive of a rank; `over`: completed and retired."""
        is_p2p = operation.startswith(("send ", "recv "))
        key = (rank, group, is_p2p)
        self._issued[key] = self._issued.get(key, 0) + 1
        tensors = [[64]] if sizes is None else sizes
        names = list(self.members)
        entry = {
            "record_id": len(self.entries[rank]),
            "pg_id": names.index(group),
            "process_group": (str(names.index(group)), group),
            "collective_seq_id": 0 if is_p2p else self._issued[key],
            "p2p_seq_id": self._issued[key] if is_p2p else 0,
            "op_id": len(self.entries[rank]) + 1,
            "profiling_name": f"{self.library}:{operation}",
            "is_p2p": is_p2p,
            "input_sizes": tensors,
            "input_dtypes": [dtype] * len(tensors),
            "output_sizes": tensors,
            "output_dtypes": [dtype] * len(tensors),
            "state": "completed" if over else "started",
            "retired": over,
            "time_created_ns": 1_700_000_000_000_000_000 + len(self.entries[rank]),
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None,
            "timeout_ms": 600_000,
            "frames": [
                {"name": operation, "filename": TORCH, "line": 1},
                {"name": "train", "filename": "/job/train.py", "line": line},
            ],
        }
        self.entries[rank].append(entry | fields)
        return self.entries[rank][-1]

    def everywhere(self, operation: str = "all_reduce", group: str = WORLD) -> None:
        """A collective that every member issued, and that is over."""
        for rank in self.members[group]:
            self.issue(rank, operation, group)

    def dump(self, rank: int) -> dict[str, Any]:
        """The value that the file of a rank holds."""
        config = {
            str(number): {
                "name": str(number),
                "desc": name,
                "ranks": str(list(self.members[name])),
            }
            for number, name in enumerate(self.members)
        }
        unlisted = {"": {"name": "", "desc": "", "ranks": "[]"}}
        return {
            "version": "2.10",
            "comm_lib_version": "",
            "pg_config": config if self.lists_members else unlisted,
            "pg_status": self.status.get(rank, {}),
            "entries": self.entries[rank],
        }

    def write(self, folder: Path, *, without: tuple[int, ...] = ()) -> list[str]:
        """One pickle for each rank, as torch writes them; their paths."""
        paths = []
        for rank in self.entries:
            if rank not in without:
                path = folder / f"nccl_trace_rank_{rank}"
                path.write_bytes(TorchPickler().pickle(self.dump(rank)))
                paths.append(str(path))
        return paths

    def write_json(self, folder: Path) -> list[str]:
        """One document for each rank, as the debug server answers."""
        paths = []
        for rank in self.entries:
            path = folder / f"rank{rank}.json"
            path.write_text(json.dumps(self.dump(rank)))
            paths.append(str(path))
        return paths


def hanging(folder: Path) -> Path:
    """A folder with the dumps of a job in which a rank is missing, another has issued
    something else, a message has no counterpart, and a dump is missing."""
    folder.mkdir()
    job = Job(5)
    job.group("pair", 2, 3)
    job.everywhere()
    job.issue(0, "all_gather", over=False)
    job.issue(2, "barrier", over=False)
    job.issue(3, "recv 1<-0", "pair", over=False)
    job.write(folder, without=(4,))
    (folder / "nccl_trace_rank_4").write_bytes(b"")
    return folder


class TorchPickler:
    """Writes plain values as torch does (torch/csrc/jit/serialization/pickler.cpp): texts
    are numbered when they come first and referred to later, nothing else is."""

    def __init__(self) -> None:
        self._parts = [b"\x80\x02"]
        self._numbers: dict[str, int] = {}

    def pickle(self, value: Any) -> bytes:
        self._write(value)
        return b"".join([*self._parts, b"."])

    def _write(self, value: Any) -> None:
        put = self._parts.append
        if value is None:
            put(b"N")
        elif isinstance(value, bool):
            put(b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            put(_integer(value))
        elif isinstance(value, str):
            self._text(value)
        elif isinstance(value, dict):
            put(b"}(")
            for key, inner in value.items():
                self._write(key)
                self._write(inner)
            put(b"u")
        elif isinstance(value, list):
            put(b"](")
            for inner in value:
                self._write(inner)
            put(b"e")
        else:
            first, second = value
            self._write(first)
            self._write(second)
            put(b"\x86")

    def _text(self, text: str) -> None:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._numbers)
            encoded = text.encode()
            self._parts.append(b"X" + struct.pack("<I", len(encoded)) + encoded)
            self._parts.append(_numbered(b"q", b"r", number))
        else:
            self._parts.append(_numbered(b"h", b"j", number))


def _integer(number: int) -> bytes:
    if 0 <= number < 1 << 8:
        return b"K" + struct.pack("<B", number)
    if 0 <= number < 1 << 16:
        return b"M" + struct.pack("<H", number)
    if -(1 << 31) <= number < 1 << 31:
        return b"J" + struct.pack("<i", number)
    return b"\x8a\x08" + struct.pack("<q", number)


def _numbered(short: bytes, long: bytes, number: int) -> bytes:
    if number < 1 << 8:
        return short + struct.pack("<B", number)
    return long + struct.pack("<I", number)
