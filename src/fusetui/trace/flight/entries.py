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
        """Start with empty tables."""
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
        """Add the dump of a rank; its entries are sorted by their number.

        Args:
            value: The value that the dump holds. Raises MalformedError, with the end of
                a sentence, if torch does not write such a value; then nothing of it was
                added.
            rank: The rank. Ranks are added in ascending order.
            path: The file.
        """
        if not isinstance(value, dict) or not is_dump(value):
            raise MalformedError("it contains neither entries nor groups")
        # the ids of the lists of another value may be the same
        self._stack_of_list.clear()
        self._tensors_of_lists.clear()
        rows = [self._row(entry) for entry in _list_field(value, "entries")]
        group_of_id = self._group_ids(value)
        dump = RankDump(
            rank=rank,
            path=path,
            version=str(value.get("version", ""))[:MAX_VERSION_CHARS],
            first_record=min((row["record"] for row in rows), default=0),
            members=_read_members(value),
            status=_read_status(value, group_of_id),
            now=_main_stack(value),
        )
        rows.sort(key=lambda row: row["record"])
        for row in rows:
            row["dump"] = len(self._ranks)
            for name, column in self._columns.items():
                column.append(row[name])
        self._ranks.append(dump)

    def dumps(self, unread: Sequence[Unread], *, ranks_from_order: bool) -> FlightDumps:
        """Everything that was added, as columns and tables.

        Args:
            unread: The files that could not be read.
            ranks_from_order: Whether ranks were numbered by the order of the files.
        """
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
        """The values of an entry by the names of the columns; its dump is set later.
        Raises MalformedError if the entry is not one of torch."""
        if not isinstance(entry, dict):
            raise MalformedError("an entry is not a dict")
        is_p2p = entry.get("is_p2p") is True
        return {
            "dump": UNKNOWN,
            "record": _int_field(entry, "record_id"),
            "group": _number_in_table(self._groups, _read_group(entry)),
            "sequence": _sequence_number(entry, is_p2p=is_p2p),
            "op": _int_field(entry, "op_id", missing=UNKNOWN),
            "operation": _number_in_table(
                self._operations, _text_field(entry, "profiling_name")
            ),
            "inputs": self._tensors_at(entry, "input"),
            "outputs": self._tensors_at(entry, "output"),
            "stack": self._stack(entry.get("frames")),
            "state": STATES.get(str(entry.get("state")), EntryState.OTHER),
            "is_p2p": is_p2p,
            "is_retired": entry.get("retired") is True,
            "created_ns": _int_field(entry, "time_created_ns", missing=UNKNOWN),
            "started_ns": _int_field(
                entry, "time_discovered_started_ns", missing=UNKNOWN
            ),
            "completed_ns": _int_field(
                entry, "time_discovered_completed_ns", missing=UNKNOWN
            ),
            "timeout_ms": _int_field(entry, "timeout_ms", missing=UNKNOWN),
        }

    def _tensors_at(self, entry: dict[str, Any], side: str) -> int:
        """Return the number of the tensors of an entry.

        Args:
            entry: The entry.
            side: "input" or "output".
        """
        lists = id(entry.get(f"{side}_sizes")), id(entry.get(f"{side}_dtypes"))
        known = self._tensors_of_lists.get(lists)
        if known is None:
            known = _number_in_table(self._tensors, _tensors(entry, side))
            self._tensors_of_lists[lists] = known
        return known

    def _stack(self, frames: Any) -> int:
        """Return the number of a stack; UNKNOWN if there are no frames.

        Args:
            frames: The list of frames of an entry, or None. Raises MalformedError for
                anything else, and for more than MAX_FRAMES.
        """
        if not frames:
            return UNKNOWN
        known = self._stack_of_list.get(id(frames))
        if known is not None:
            return known
        if not isinstance(frames, list) or len(frames) > MAX_FRAMES:
            raise MalformedError(
                f"the frames of an entry are not a list of at most {MAX_FRAMES:,} frames"
            )
        stack = _number_in_table(self._stacks, tuple(map(_read_frame, frames)))
        self._stack_of_list[id(frames)] = stack
        return stack

    def _group_ids(self, value: dict[str, Any]) -> dict[str, GroupName]:
        """Return the process groups by the number that this rank gives them, as text.

        The entries say both: {"0": default_pg, "3": tensor_parallel}. The group of all
        ranks is made first, so it has number 0 even if no entry of it is left.
        """
        groups = {"0": ALL_RANKS}
        for entry in _list_field(value, "entries"):
            if type(entry.get("pg_id")) is int:
                groups[str(entry["pg_id"])] = _read_group(entry)
        return groups


def is_dump(value: Mapping[str, Any]) -> bool:
    """Whether a dict has the keys of a flight recorder dump."""
    return "entries" in value or ("pg_config" in value and "version" in value)


def _number_in_table(table: dict[Key, int], key: Key) -> int:
    """Return the number of a key in a table; a new key gets the next number."""
    return table.setdefault(key, len(table))


def _list_field(fields: Mapping[str, Any], key: str) -> list[Any]:
    """Return the list with this key, [] if there is none. Raises MalformedError if it
    is anything but a list."""
    items = fields.get(key)
    if items is None:
        return []
    if not isinstance(items, list):
        raise MalformedError(f"its {key} are not a list")
    return items


def _text_field(fields: Mapping[str, Any], key: str) -> str:
    """The text with this key. Raises MalformedError if it is missing or not a text."""
    text = fields.get(key)
    if not isinstance(text, str):
        raise MalformedError(f"the {key} of an entry is not a string")
    return text


def _int_field(fields: Mapping[str, Any], key: str, missing: int | None = None) -> int:
    """Return the whole number with this key.

    Args:
        fields: The values of an entry.
        key: The key.
        missing: What to return if there is none; without it that raises MalformedError,
            as anything but a number from -1 to MAX_NUMBER does.
    """
    number = fields.get(key)
    if number is None and missing is not None:
        return missing
    if type(number) is not int or not -1 <= number <= MAX_NUMBER:
        raise MalformedError(f"the {key} of an entry is not a non-negative integer")
    return number


def _sequence_number(entry: Mapping[str, Any], *, is_p2p: bool) -> int:
    """Return the number of a call within its group.

    Collectives are counted, and sends and receives (`is_p2p`) separately. Dumps of the
    versions 1.x have one count for both.
    """
    if "seq_id" in entry:
        return _int_field(entry, "seq_id")
    return _int_field(entry, "p2p_seq_id" if is_p2p else "collective_seq_id")


def _read_group(entry: Mapping[str, Any]) -> GroupName:
    """Return the process group of an entry, from ["0", "default_pg"].

    Dumps before version 1.5 have only a number, `pg_id`. Raises MalformedError if there
    is neither.
    """
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
    """Return the tensors of an entry, from sizes [[2, 3]] and dtypes ["Float"].

    Args:
        entry: The entry. Raises MalformedError if these have another form.
        side: "input" or "output".
    """
    sizes = []
    for dimensions in _list_field(entry, f"{side}_sizes"):
        if not isinstance(dimensions, list | tuple):
            raise MalformedError("the sizes of an entry are not lists of numbers")
        for dimension in dimensions:
            if type(dimension) is not int or not 0 <= dimension <= MAX_NUMBER:
                raise MalformedError("the sizes of an entry are not lists of numbers")
        sizes.append(tuple(dimensions))
    dtypes = _list_field(entry, f"{side}_dtypes")
    if not set(map(type, dtypes)) <= {str}:
        raise MalformedError("the dtypes of an entry are not strings")
    return Tensors(tuple(sizes), tuple(dtypes))


def _read_frame(fields: Any) -> Frame:
    """A frame of a Python stack; its line is 0 if it has no valid one. Raises
    MalformedError if it is not a dict."""
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


def _main_stack(value: Mapping[str, Any]) -> tuple[Frame, ...]:
    """The present Python stack of the main thread of a rank, innermost frame first; ()
    if the dump has none."""
    text = value.get(STACKS_KEY)
    return main_thread(text) if isinstance(text, str) else ()


def _read_members(value: Mapping[str, Any]) -> dict[GroupName, tuple[int, ...]]:
    """Return the ranks of each process group, from the key `pg_config` of a dump.

    {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}} gives ranks 0 and 1.
    Groups whose ranks are not listed are left out.
    """
    config = value.get("pg_config")
    if not isinstance(config, dict):
        return {}
    members = {}
    for name, fields in config.items():
        if not isinstance(fields, dict):
            continue
        ranks = _parse_ranks(fields.get("ranks"))
        if ranks:
            group = GroupName(
                str(fields.get("name", name)), str(fields.get("desc", ""))
            )
            members[group] = ranks
    return members


def _parse_ranks(listed: Any) -> tuple[int, ...]:
    """Return the ranks in a list, or in a text such as "[1, 0]", as torch writes it:
    (0, 1). They are distinct and ascend; what is no rank below MAX_RANKS is left
    out."""
    numbers: list[int] = []
    if isinstance(listed, str):
        numbers = [int(number) for number in RANK_NUMBER.findall(listed)]
    elif isinstance(listed, list):
        numbers = [rank for rank in listed if type(rank) is int]
    ranks = {rank for rank in numbers if 0 <= rank < MAX_RANKS}
    return tuple(sorted(ranks))


def _read_status(
    value: Mapping[str, Any], group_of_id: Mapping[str, GroupName]
) -> dict[GroupName, GroupStatus]:
    """Return how far a rank says that it is in each group, from the key `pg_status`.

    Args:
        value: The dump.
        group_of_id: The groups by the number that the rank gives them. Others are left
            out.
    """
    reported = value.get("pg_status")
    if not isinstance(reported, dict):
        return {}
    status = {}
    for local_id, fields in reported.items():
        group = group_of_id.get(str(local_id))
        if group is not None and isinstance(fields, dict):
            status[group] = GroupStatus(
                last_enqueued=_status_number(fields, "last_enqueued_collective"),
                last_started=_status_number(fields, "last_started_collective"),
                last_completed=_status_number(fields, "last_completed_collective"),
            )
    return status


def _status_number(fields: Mapping[str, Any], key: str) -> int:
    """A number of the status of a group; UNKNOWN if it is missing or invalid."""
    number = fields.get(key)
    return number if type(number) is int and 0 <= number <= MAX_NUMBER else UNKNOWN


def joined(parts: Sequence[FlightDumps]) -> FlightDumps:
    """Combine the dumps of several parts of a job.

    Args:
        parts: Dumps of different ranks, in the order of the ranks. Each part numbers
            its groups, operations, tensors and stacks itself.

    Returns:
        All dumps, with one numbering of these.
    """
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
        """Start with empty tables."""
        self.groups: dict[GroupName, int] = {}
        self.operations: dict[str, int] = {}
        self.tensors: dict[Tensors, int] = {}
        self.stacks: dict[tuple[Frame, ...], int] = {}

    def renumbered(self, part: FlightDumps) -> dict[str, Any]:
        """The columns of a part that are numbers into its tables, renumbered for the
        joined tables. What is new in the part is added to these."""
        entries = part.entries
        return {
            "group": _renumber_column(entries.group, part.groups, self.groups),
            "operation": _renumber_column(
                entries.operation, part.operations, self.operations
            ),
            "inputs": _renumber_column(entries.inputs, part.tensors, self.tensors),
            "outputs": _renumber_column(entries.outputs, part.tensors, self.tensors),
            "stack": _renumber_column(entries.stack, part.stacks, self.stacks),
        }


def _renumber_column(
    column: Int32s, keys: Sequence[Key], table: dict[Key, int]
) -> Int32s:
    """A column of indices into `keys`, turned into indices into a table that all parts
    share. New keys are added to the table; UNKNOWN stays."""
    places = [_number_in_table(table, key) for key in keys]
    # UNKNOWN takes the last one
    renumbered: Int32s = np.array([*places, UNKNOWN], np.int32)[column]
    return renumbered
