"""`fusetui hang` on the dumps of a large job: seconds and memory.

    python -P benchmarks/hang_scale.py [--ranks 1024 4096 16384] [--entries 100] [--put]

The job has a group of all ranks, groups of 8 for tensor parallelism, and groups of every 8th rank for data
parallelism; one rank does not come to the last collective. --put places the table into
docs/hang.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.pages import put
from tests.flight_dumps import TORCH, WORLD, TorchPickler

from fusetui.text.figures import count
from fusetui.text.printable import markdown_table

PAGE = Path(__file__).parents[1] / "docs" / "hang.md"
GROUP_RANKS = 8  # of a tensor-parallel group
OPERATIONS = ("_all_gather_base", "_reduce_scatter_base", "all_reduce")
LINES = 12  # of the program that issue collectives


class Measured(msgspec.Struct, frozen=True):
    ranks: int
    entries: int  # of each rank
    size: int  # bytes of all dumps
    seconds: float
    peak: int  # bytes of the largest of the processes
    named: int  # the rank that the answer names
    missing: int  # the rank that does not come


def entries_of(rank: int, count_of_entries: int, missing: int) -> list[dict[str, Any]]:
    """Return the entries of the flight recorder of a rank: its two groups in turn, then
    the group of all ranks. The missing rank lacks the last one."""
    groups = (
        ("1", f"tp{rank // GROUP_RANKS}"),
        ("2", f"dp{rank % GROUP_RANKS}"),
    )
    entries = []
    for number in range(count_of_entries - 1):
        name = groups[number % 2]
        entries.append(_entry(number, name, number // 2 + 1, over=True))

    if rank != missing:
        entries.append(_entry(count_of_entries - 1, ("0", WORLD), 1, over=False))

    return entries


def _entry(
    number: int, group: tuple[str, str], sequence: int, *, over: bool
) -> dict[str, Any]:
    """Return one entry of the flight recorder, for a collective of a group that is
    `over` or not."""
    line = number % LINES
    sizes = [[4096, 1024 + 128 * line]]
    return {
        "record_id": number,
        "pg_id": int(group[0]),
        "process_group": group,
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "op_id": sequence,
        "profiling_name": f"nccl:{OPERATIONS[line % len(OPERATIONS)]}",
        "time_created_ns": 1_700_000_000_000_000_000 + 1_000_000 * number,
        "input_sizes": sizes,
        "input_dtypes": ["BFloat16"],
        "output_sizes": sizes,
        "output_dtypes": ["BFloat16"],
        "state": "completed" if over else "started",
        "time_discovered_started_ns": 1_700_000_000_000_000_000 + 1_000_000 * number,
        "time_discovered_completed_ns": None,
        "retired": over,
        "timeout_ms": 600_000,
        "is_p2p": False,
        "frames": [
            {"name": "all_gather", "filename": TORCH, "line": 4280},
            {"name": f"layer_{line}", "filename": "/job/model.py", "line": 10 + line},
            {"name": "train", "filename": "/job/train.py", "line": 200},
        ],
    }


def write_job(folder: Path, ranks: int, entries: int, missing: int) -> int:
    """Write the dumps of a job in which one rank is missing, and return their bytes."""
    config = {
        "0": {"name": "0", "desc": WORLD, "ranks": str(list(range(ranks)))},
    }
    size = 0
    for rank in range(ranks):
        value = {
            "version": "2.10",
            "comm_lib_version": "2.27.5",
            # torch lists all groups on each rank; a list of 16,384 ranks has 98 kB
            "pg_config": config if rank == 0 else {},
            "pg_status": {},
            "entries": entries_of(rank, entries, missing),
        }
        data = TorchPickler().pickle(value)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(data)
        size += len(data)

    return size


def measured(ranks: int, entries: int) -> Measured:
    """Return the seconds and the memory that `fusetui hang` takes for a job, and which
    rank it names."""
    missing = ranks * 2 // 3
    with tempfile.TemporaryDirectory() as folder:
        size = write_job(Path(folder), ranks, entries, missing)
        command = [sys.executable, "-P", "-m", "fusetui", "hang", folder, "--json"]
        began = time.perf_counter()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(command, stdout=output)
            _, _, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - began
            output.seek(0)
            answer = json.load(output)

    return Measured(
        ranks=ranks,
        entries=entries,
        size=size,
        seconds=seconds,
        peak=usage.ru_maxrss * 1024,
        named=answer["culprits"][0]["rank"],
        missing=missing,
    )


def main() -> None:
    """Measure jobs of all sizes, and print the table; with --put it is put into
    docs/hang.md."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1024, 4096, 16384])
    parser.add_argument("--entries", type=int, default=100)
    parser.add_argument("--put", action="store_true", help="into the page")

    args = parser.parse_args()
    rows = []
    for ranks in args.ranks:
        result = measured(ranks, args.entries)
        rows.append(
            [
                count(result.ranks),
                count(result.entries),
                f"{result.size / 1e6:.0f} MB",
                f"{result.seconds:.1f} s",
                f"{result.peak / 1e6:.0f} MB",
                "yes" if result.named == result.missing else "no",
            ]
        )
        print(rows[-1], flush=True)

    titles = ["ranks", "entries of each", "dumps", "time", "memory", "named rightly"]
    text = "\n".join(markdown_table(titles, rows))
    print(text)

    if args.put:
        put(PAGE, "large jobs", text, __file__)


if __name__ == "__main__":
    main()
