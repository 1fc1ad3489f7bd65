"""Converts the plain values of dumps to columns, one dump after another."""

from __future__ import annotations

import re
from array import array
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from fusetui.trace.flight.columns import (
    UNKNOWN,
    EntryState,
    FlightDumps,
    FlightEntries,
    Frame,
    GroupName,
    GroupStatus,
    RankDump,
    Tensors,
    Unread,
)
from fusetui.trace.flight.python_stacks import STACKS_KEY, main_thread
from fusetui.trace.model.arrays import Int32s
from fusetui.trace.snapshot.tables import MalformedError

ALL_RANKS = GroupName("0", "default_pg")
"""The group of all ranks, as init_process_group names it (distributed_c10d.py)."""
MAX_RANKS = 1 << 20  # of a job
MAX_FRAMES = 1024  # of a stack
MAX_NUMBER = (1 << 63) - 1  # of a column
MAX_VERSION_CHARS = 20
RANK_NUMBER = re.compile(r"[0-9]{1,7}")
STATES = {
    "scheduled": EntryState.SCHEDULED,
    "started": EntryState.STARTED,
    "completed": EntryState.COMPLETED,
}
COLUMN_TYPES = {
    "dump": "i",
    "record": "q",
    "group": "i",
    "sequence": "q",
    "op": "q",
    "operation": "i",
    "inputs": "i",
    "outputs": "i",
    "stack": "i",
    "state": "B",
    "is_p2p": "B",
    "is_retired": "B",
    "created_ns": "q",
    "started_ns": "q",
    "completed_ns": "q",
    "timeout_ms": "q",
}
"""The array type of each column of FlightEntries."""

Key = TypeVar("Key", bound=Hashable)


class DumpTables:
    """Takes the values of dumps, in the order of their ranks, and keeps columns and
    tables."""

    def __init__(self) -> None:
        """Empty tables."""
        self._ranks: list[RankDump] = []
        self._columns = {name: array(code) for name, code in COLUMN_TYPES.items()}
        self._groups: dict[GroupName, int] = {}
        self._operations: dict[str, int] = {}
        self._tensors: dict[Tensors, int] = {}
        self._stacks: dict[tuple[Frame, ...], int] = {}
        # A pickle of torch refers to one list wherever its entries are equal, so lists
        # are known by their identity within one dump.
        self._stack_of_list: dict[int, int] = {}
        self._tensors_of_lists: dict[tuple[int, int], int] = {}

    def add(self, value: Any, *, rank: int, path: str) -> None:
        """Adds the dump of a rank. Raises MalformedError, with the end of a sentence,
        for what torch does not write; then nothing of it was added."""
        if not isinstance(value, dict) or not is_dump(value):
            raise MalformedError("it contains neither entries nor groups")
        # the ids of the lists of another value may be the same
        self._stack_of_list.clear()
        self._tensors_of_lists.clear()
        rows = [self._row(entry) for entry in _list(value, "entries")]
        group_of_id = self._group_ids(value)
        dump = RankDump(
            rank=rank,
            path=path,
            version=str(value.get("version", ""))[:MAX_VERSION_CHARS],
            first_record=min((row["record"] for row in rows), default=0),
            members=_members(value),
            status=_status(value, group_of_id),
            now=_stack_now(value),
        )
        rows.sort(key=lambda row: row["record"])
        for row in rows:
            row["dump"] = len(self._ranks)
            for name, column in self._columns.items():
                column.append(row[name])
        self._ranks.append(dump)

    def dumps(self, unread: Sequence[Unread], *, ranks_from_order: bool) -> FlightDumps:
        """All that was added."""
        columns: dict[str, Any] = {
            name: np.frombuffer(column, column.typecode)
            for name, column in self._columns.items()
        }
        for flag in ("is_p2p", "is_retired"):
            columns[flag] = columns[flag].astype(np.bool_)
        return FlightDumps(
            ranks=tuple(self._ranks),
            ranks_from_order=ranks_from_order,
            unread=tuple(unread),
            entries=FlightEntries(**columns),
            groups=tuple(self._groups),
            operations=tuple(self._operations),
            tensors=tuple(self._tensors),
            stacks=tuple(self._stacks),
        )

    def _row(self, entry: Any) -> dict[str, int]:
        """The values of an entry by the names of COLUMN_TYPES; `dump` is set later.
        Raises MalformedError."""
        if not isinstance(entry, dict):
            raise MalformedError("an entry is not a dict")
        is_p2p = entry.get("is_p2p") is True
        return {
            "dump": UNKNOWN,
            "record": _number(entry, "record_id"),
            "group": _index(self._groups, _group(entry)),
            "sequence": _sequence(entry, is_p2p=is_p2p),
            "op": _number(entry, "op_id", missing=UNKNOWN),
            "operation": _index(self._operations, _text(entry, "profiling_name")),
            "inputs": self._tensors_at(entry, "input"),
            "outputs": self._tensors_at(entry, "output"),
            "stack": self._stack(entry.get("frames")),
            "state": STATES.get(str(entry.get("state")), EntryState.OTHER),
            "is_p2p": is_p2p,
            "is_retired": entry.get("retired") is True,
            "created_ns": _number(entry, "time_created_ns", missing=UNKNOWN),
            "started_ns": _number(entry, "time_discovered_started_ns", missing=UNKNOWN),
            "completed_ns": _number(
                entry, "time_discovered_completed_ns", missing=UNKNOWN
            ),
            "timeout_ms": _number(entry, "timeout_ms", missing=UNKNOWN),
        }

    def _tensors_at(self, entry: dict[str, Any], side: str) -> int:
        """The number of the tensors of a side, `input` or `output`."""
        lists = id(entry.get(f"{side}_sizes")), id(entry.get(f"{side}_dtypes"))
        known = self._tensors_of_lists.get(lists)
        if known is None:
            known = _index(self._tensors, _tensors(entry, side))
            self._tensors_of_lists[lists] = known
        return known

    def _stack(self, frames: Any) -> int:
        """The number of the stack with these frames; UNKNOWN without any."""
        if not frames:
            return UNKNOWN
        known = self._stack_of_list.get(id(frames))
        if known is not None:
            return known
        if not isinstance(frames, list) or len(frames) > MAX_FRAMES:
            raise MalformedError(
                f"the frames of an entry are not a list of at most {MAX_FRAMES:,} frames"
            )
        stack = _index(self._stacks, tuple(map(_frame, frames)))
        self._stack_of_list[id(frames)] = stack
        return stack

    def _group_ids(self, value: dict[str, Any]) -> dict[str, GroupName]:
        """The groups by the number that this rank gives them. That of all ranks is made
        first, so it has 0 everywhere, also where the ring lost its entries."""
        groups = {"0": ALL_RANKS}
        for entry in _list(value, "entries"):
            if type(entry.get("pg_id")) is int:
                groups[str(entry["pg_id"])] = _group(entry)
        return groups


def is_dump(value: Mapping[str, Any]) -> bool:
    """Whether a table of values has the keys of a dump."""
    return "entries" in value or ("pg_config" in value and "version" in value)


def _index(table: dict[Key, int], key: Key) -> int:
    """The place of a key in a table, at its end if it is new."""
    return table.setdefault(key, len(table))


def _list(fields: Mapping[str, Any], key: str) -> list[Any]:
    """A list, empty where there is none. Raises MalformedError for anything else."""
    items = fields.get(key)
    if items is None:
        return []
    if not isinstance(items, list):
        raise MalformedError(f"its {key} are not a list")
    return items


def _text(fields: Mapping[str, Any], key: str) -> str:
    text = fields.get(key)
    if not isinstance(text, str):
        raise MalformedError(f"the {key} of an entry is not a string")
    return text


def _number(fields: Mapping[str, Any], key: str, missing: int | None = None) -> int:
    """A whole number; `missing` where there is none, if that is allowed."""
    number = fields.get(key)
    if number is None and missing is not None:
        return missing
    if type(number) is not int or not -1 <= number <= MAX_NUMBER:
        raise MalformedError(f"the {key} of an entry is not a non-negative integer")
    return number


def _sequence(entry: Mapping[str, Any], *, is_p2p: bool) -> int:
    """The number among the collectives, or sends and receives, of the group; versions
    1.x have one for both."""
    if "seq_id" in entry:
        return _number(entry, "seq_id")
    return _number(entry, "p2p_seq_id" if is_p2p else "collective_seq_id")


def _group(entry: Mapping[str, Any]) -> GroupName:
    """The process group of an entry."""
    names = entry.get("process_group")
    if isinstance(names, list | tuple) and len(names) == 2:
        name, description = names
        if isinstance(name, str) and isinstance(description, str):
            return GroupName(name, description)
    if names is None and type(entry.get("pg_id")) is int:  # versions before 1.5
        return GroupName(str(entry["pg_id"]), "")
    raise MalformedError(
        "the process_group of an entry is not a name and a description"
    )


def _tensors(entry: Mapping[str, Any], side: str) -> Tensors:
    """The tensors of a side of an entry, `input` or `output`."""
    sizes = []
    for dimensions in _list(entry, f"{side}_sizes"):
        if not isinstance(dimensions, list | tuple):
            raise MalformedError("the sizes of an entry are not lists of numbers")
        for dimension in dimensions:
            if type(dimension) is not int or not 0 <= dimension <= MAX_NUMBER:
                raise MalformedError("the sizes of an entry are not lists of numbers")
        sizes.append(tuple(dimensions))
    dtypes = _list(entry, f"{side}_dtypes")
    if not set(map(type, dtypes)) <= {str}:
        raise MalformedError("the dtypes of an entry are not strings")
    return Tensors(tuple(sizes), tuple(dtypes))


def _frame(fields: Any) -> Frame:
    """A frame of a stack; its line is 0 if it has none. Raises MalformedError."""
    if not isinstance(fields, dict):
        raise MalformedError("a frame is not a dict")
    line = fields.get("line")
    if type(line) is not int or not 0 <= line <= MAX_NUMBER:
        line = 0
    return Frame(
        function=str(fields.get("name", "")),
        file=str(fields.get("filename", "")),
        line=line,
    )


def _stack_now(value: Mapping[str, Any]) -> tuple[Frame, ...]:
    """The stack of the main thread, innermost frame first; () if the dump has none."""
    text = value.get(STACKS_KEY)
    return main_thread(text) if isinstance(text, str) else ()


def _members(value: Mapping[str, Any]) -> dict[GroupName, tuple[int, ...]]:
    """The ranks of the groups for which they are listed."""
    config = value.get("pg_config")
    if not isinstance(config, dict):
        return {}
    members = {}
    for name, fields in config.items():
        if not isinstance(fields, dict):
            continue
        ranks = _ranks_listed(fields.get("ranks"))
        if ranks:
            group = GroupName(
                str(fields.get("name", name)), str(fields.get("desc", ""))
            )
            members[group] = ranks
    return members


def _ranks_listed(listed: Any) -> tuple[int, ...]:
    """The distinct ranks in ascending order: torch writes them as text, "[0, 1]"."""
    numbers: list[int] = []
    if isinstance(listed, str):
        numbers = [int(number) for number in RANK_NUMBER.findall(listed)]
    elif isinstance(listed, list):
        numbers = [rank for rank in listed if type(rank) is int]
    ranks = {rank for rank in numbers if 0 <= rank < MAX_RANKS}
    return tuple(sorted(ranks))


def _status(
    value: Mapping[str, Any], group_of_id: Mapping[str, GroupName]
) -> dict[GroupName, GroupStatus]:
    """What the rank says of its place in the groups that its entries name."""
    reported = value.get("pg_status")
    if not isinstance(reported, dict):
        return {}
    status = {}
    for local_id, fields in reported.items():
        group = group_of_id.get(str(local_id))
        if group is not None and isinstance(fields, dict):
            status[group] = GroupStatus(
                last_enqueued=_reported(fields, "last_enqueued_collective"),
                last_started=_reported(fields, "last_started_collective"),
                last_completed=_reported(fields, "last_completed_collective"),
            )
    return status


def _reported(fields: Mapping[str, Any], key: str) -> int:
    """A number of the status; UNKNOWN where there is none."""
    number = fields.get(key)
    return number if type(number) is int and 0 <= number <= MAX_NUMBER else UNKNOWN


def joined(parts: Sequence[FlightDumps]) -> FlightDumps:
    """The dumps of several parts as one, in their order; each part has its own ranks,
    and tables of its own."""
    tables = _JoinedTables()
    columns: dict[str, list[Any]] = {name: [] for name in COLUMN_TYPES}
    dump_count = 0
    for part in parts:
        renumbered = tables.renumbered(part)
        renumbered["dump"] = part.entries.dump + np.int32(dump_count)
        for name, column in columns.items():
            values = renumbered.get(name, getattr(part.entries, name))
            column.append(values)
        dump_count += len(part.ranks)
    joined_columns: dict[str, Any] = {
        name: np.concatenate(column) for name, column in columns.items()
    }
    return FlightDumps(
        ranks=tuple(rank for part in parts for rank in part.ranks),
        ranks_from_order=any(part.ranks_from_order for part in parts),
        unread=tuple(file for part in parts for file in part.unread),
        entries=FlightEntries(**joined_columns),
        groups=tuple(tables.groups),
        operations=tuple(tables.operations),
        tensors=tuple(tables.tensors),
        stacks=tuple(tables.stacks),
    )


class _JoinedTables:
    """The tables of several parts as one each: the number of each entry."""

    def __init__(self) -> None:
        self.groups: dict[GroupName, int] = {}
        self.operations: dict[str, int] = {}
        self.tensors: dict[Tensors, int] = {}
        self.stacks: dict[tuple[Frame, ...], int] = {}

    def renumbered(self, part: FlightDumps) -> dict[str, Any]:
        """The columns of a part that have numbers of its tables, with those of the
        joined ones, to which what is new in it is added."""
        entries = part.entries
        return {
            "group": _renumbered(entries.group, part.groups, self.groups),
            "operation": _renumbered(
                entries.operation, part.operations, self.operations
            ),
            "inputs": _renumbered(entries.inputs, part.tensors, self.tensors),
            "outputs": _renumbered(entries.outputs, part.tensors, self.tensors),
            "stack": _renumbered(entries.stack, part.stacks, self.stacks),
        }


def _renumbered(column: Int32s, keys: Sequence[Key], table: dict[Key, int]) -> Int32s:
    """A column of places in `keys` as one of places in a table that all parts share;
    UNKNOWN stays."""
    places = [_index(table, key) for key in keys]
    # UNKNOWN takes the last one
    renumbered: Int32s = np.array([*places, UNKNOWN], np.int32)[column]
    return renumbered
