"""`fusetui ranks` over many generated ranks: time, memory, and whether it finds what
was planted.

    python -P benchmarks/ranks.py trace.json.gz --ranks 256 --megabytes 50
    python -P benchmarks/ranks.py trace.json.gz --ranks 32 --megabytes 10 --print

With --hta PYTHON, a Python that has HolisticTraceAnalysis, eight of the ranks are also
given to both, the late ones among them.

Every rank repeats one real trace with NCCL collectives (see generate.py). Planted are:
the offset of every clock, the drift of a few, three ranks that start collectives late,
and a cut file. Beside it: `why` of single ranks, the same question asked again, and the
answer from 16,384 generated summaries. Prints the table and puts it into
docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put

from fusetui.analysis.ranks.answer import explained
from fusetui.analysis.ranks.model import (
    CLASSES,
    Collectives,
    RankSummary,
    decode_summary,
    encode_summary,
    pack_table,
)
from fusetui.analysis.ranks.summary import read_summary

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
PYTHON = [sys.executable, "-P"]
FUSETUI = [*PYTHON, "-m", "fusetui"]

KERNEL = re.compile(
    rb'"ncclKernel_AllReduce[^"]*", "pid": \d+, "tid": \d+,\s+"ts": ([\d.]+), "dur": ([\d.]+)'
)
BASE = re.compile(rb'"baseTimeNanoseconds": (\d+)')
LATE_US, JITTER_US, MARGIN_US = 700.0, 40.0, 200.0
SHORT, SHORT_US = 5, 120.0
OFFSET_NS, DRIFT = 5_000_000, 20e-6
DRIFTING, SAMPLED = 4, 4
MANY, EACH = 16_384, 200
FEW = 8  # ranks that HTA is given
HTA = """
import json, logging, sys
from importlib.metadata import version
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files=dict(enumerate(sys.argv[1:])))
try:
    told = [int(rank) for rank in analysis.get_potential_stragglers()]
except Exception as error:
    told = f"{type(error).__name__}: {error}"
print(json.dumps([version("HolisticTraceAnalysis"), told]))
"""


class Planted(NamedTuple):
    """What the answer must find."""

    offsets: list[int]  # ns by which each clock is ahead
    late: tuple[int, ...]
    cut: int


class Used(NamedTuple):
    """Of a command and all its processes."""

    wall: float
    cpu: float
    megabytes: float
    output: bytes


def write_ranks(source: Path, folder: Path, ranks: int, megabytes: int) -> Planted:
    """Write one trace for each rank, with late ranks, a cut file and clocks of their
    own. Returns what was planted; the seed is fixed, so it is always the same."""
    chance = random.Random(0)
    made = folder / "made.json"
    script = str(ROOT / "benchmarks" / "generate.py")
    command = [*PYTHON, script, str(source), str(made), "--megabytes", str(megabytes)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    text = for_job(made.read_bytes(), ranks)
    made.unlink()
    late = tuple(sorted(chance.sample(range(1, ranks), 3)))
    cut = next(rank for rank in range(ranks - 1, 0, -1) if rank not in late)

    offsets = [chance.randint(-OFFSET_NS, OFFSET_NS) for _ in range(ranks)]
    drifting = [rank for rank in range(ranks) if rank not in (*late, cut, 0)][:DRIFTING]
    for rank, offset in enumerate(offsets):
        drift = DRIFT if rank in drifting else 0.0
        own = for_rank(text, rank, offset, drift, late, random.Random(rank))
        path = folder / f"rank{rank}.json"
        path.write_bytes(own if rank != cut else own[: len(own) // 2])

    return Planted(offsets, late, cut)


def for_job(text: bytes, ranks: int) -> bytes:
    """Return the text of a trace in which the process group has so many ranks instead
    of 2."""
    listed = json.dumps(list(range(ranks))).encode()
    text = text.replace(b'"Group size": 2', b'"Group size": %d' % ranks)
    text = text.replace(
        b'"Process Group Ranks": "[0, 1]"', b'"Process Group Ranks": "[0, ...]"'
    )
    text = text.replace(
        b'"pg_size": 2, "ranks": [0, 1]',
        b'"pg_size": %d, "ranks": %s' % (ranks, listed),
    )
    return text.replace(b'"world_size": 2', b'"world_size": %d' % ranks)


def for_rank(
    text: bytes,
    rank: int,
    offset: int,
    drift: float,
    late: Sequence[int],
    chance: random.Random,
) -> bytes:
    """Return the text of the trace of one rank. Its all_reduces start late, or a little
    later than on others, and end as on all of them.

    `offset` is by how many ns its clock is ahead, and `drift` by how much more with
    each ns.
    """
    text = text.replace(b'"rank": 0', b'"rank": %d' % rank, 1)
    text = BASE.sub(
        lambda found: b'"baseTimeNanoseconds": %d' % (int(found[1]) + offset), text, 1
    )
    places = list(KERNEL.finditer(text))

    first = min(float(found[1]) for found in places)
    out, at = [], 0
    for number, found in enumerate(places):
        start, dur = float(found[1]), float(found[2])
        by = chance.uniform(0, JITTER_US)
        if late[number % len(late)] == rank and dur > LATE_US + MARGIN_US:
            by = LATE_US

        by = min(by, dur / 4)
        # a small one, as norms of gradients are: these bound the clocks
        if number % SHORT == 0:
            by = dur - SHORT_US + min(by, JITTER_US)

        moved = (start - first) * drift
        out += [text[at : found.start(1)], b"%.3f" % (start + by + moved)]
        out += [text[found.end(1) : found.start(2)], b"%.3f" % (dur - by)]
        at = found.end()

    return b"".join([*out, text[at:]])


def used(command: Sequence[str], cache: Path | None = None) -> Used:
    """Run a command, and return its time, its CPU time, its memory and its output.
    Memory is the largest sum over its processes, sampled every 50 ms."""
    surroundings = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    surroundings["FUSETUI_CACHE"] = str(cache) if cache else "off"

    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out, env=surroundings)
        most = 0
        while process.poll() is None:
            most = max(most, memory(process.pid))
            time.sleep(0.05)
        wall, after = (
            time.perf_counter() - start,
            resource.getrusage(resource.RUSAGE_CHILDREN),
        )
        out.seek(0)
        told = out.read()

    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Used(wall, cpu, most / 1e6, told)


def memory(pid: int) -> int:
    """Return the bytes in memory of a process and all processes below it, on Linux."""
    total = 0
    try:
        total = (
            int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            * resource.getpagesize()
        )
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, IndexError):
        return total

    return total + sum(memory(int(child)) for child in children)


def waited_for(found: dict[str, Any], count: int) -> list[int]:
    """Return the `count` ranks that the others wait for longest, in ascending order.
    What is planted is less than the share of a step from which `ranks` names a rank."""
    return sorted(row["rank"] for row in sorted(found["ranks"], key=caused)[-count:])


def caused(row: dict[str, Any]) -> int:
    return int(row["caused_ns"] or 0)


def problems(found: dict[str, Any], planted: Planted) -> list[str]:
    """Return what of the planted was not found, in sentences; empty if all was found."""
    rows = {row["rank"]: row for row in found["ranks"]}
    zero = planted.offsets[found["clocks"]["reference_rank"]]

    told = []
    if (late := waited_for(found, len(planted.late))) != list(planted.late):
        told.append(f"late ranks {late}")

    for rank, offset in enumerate(planted.offsets):
        row = rows.get(rank)
        if rank == planted.cut:
            if row is not None and not row["damage"]:
                told.append("the cut file")
        elif row is None or row["offset_ns"] is None:
            told.append(f"the offset of rank {rank}")
        elif abs(row["offset_ns"] - (offset - zero)) > row["uncertainty_ns"]:
            told.append(
                f"the offset of rank {rank}: {row['offset_ns']}, not {offset - zero}"
            )

    return told


def many_summaries(source: Path) -> tuple[float, float]:
    """Return the seconds and the peak MB of an answer from MANY generated summaries, in
    a process of its own."""
    command = [*PYTHON, __file__, str(source), "--many"]
    found = used(command)
    return float(found.output), found.megabytes


def answer_many(source: Path) -> float:
    """Return the CPU seconds that an answer from MANY summaries takes, from their bytes
    on. The time to generate the summaries is subtracted."""
    one = read_summary(str(source), cached=False)
    assert isinstance(one, RankSummary)
    making = 0.0

    def read() -> Iterator[RankSummary]:
        """As from the cache; the time that generating them takes does not count."""
        nonlocal making
        for rank in range(MANY):
            begin = time.process_time()
            data = encode_summary(summary(one, rank))
            making += time.process_time() - begin
            yield decode_summary(data)

    start = time.process_time()
    answer = explained(read()).answer
    assert (answer.given, answer.collectives) == (MANY, EACH)
    return time.process_time() - start - making


def summary(one: RankSummary, rank: int) -> RankSummary:
    """Return the summary of a rank with EACH all_reduces, 2 ms apart, on a clock of its
    own."""
    chance = np.random.default_rng(rank)
    offset = int(chance.integers(-OFFSET_NS, OFFSET_NS))
    start = np.arange(EACH) * 2_000_000 + chance.integers(0, 50_000, EACH) + offset
    end = np.arange(EACH) * 2_000_000 + 1_000_000 + offset
    which = np.zeros(EACH, dtype=np.int64)
    group = one.groups[0]
    collectives = Collectives(
        group=which,
        name=which,
        sequence=which - 1,
        size=which + 1_000_000,
        peer=which - 1,
        issued=start,
        start=start,
        end=end,
        covered=which,
        ready=start,
        ahead=which,
        stalled=end - start,
        before=pack_table(np.zeros((EACH, len(CLASSES)), dtype=np.int64)),
    )

    return replace(
        one,
        path=f"rank{rank}.json",
        rank=rank,
        world_size=MANY,
        begin_ns=int(start[0]),
        end_ns=int(end[-1]),
        groups=(replace(group, ranks=(), size=MANY),),
        names=("all_reduce", ""),
        collectives=collectives,
    )


def beside_hta(
    python: str, folder: Path, planted: Planted
) -> list[tuple[str, str, str]]:
    """Return rows of the table with what fusetui and HTA say about a few ranks."""
    others = (rank for rank in range(len(planted.offsets)) if rank not in planted.late)
    few = [*planted.late, *(rank for rank in others if rank != planted.cut)][:FEW]
    files = [str(folder / f"rank{rank}.json") for rank in sorted(few)]
    ours = used([*FUSETUI, "ranks", *files, "--json"])
    late = waited_for(json.loads(ours.output), len(planted.late))
    theirs = used([python, "-c", HTA, *files])
    version, told = json.loads(theirs.output.splitlines()[-1])
    named = (
        told if isinstance(told, str) else _late([sorted(few)[place] for place in told])
    )
    each = {"fusetui": (ours, _late(late)), f"HTA {version}": (theirs, named)}

    return [
        (f"{len(files)} ranks, {_late(planted.late)}", name, _figures(one, said))
        for name, (one, said) in each.items()
    ]


def _late(ranks: Sequence[int]) -> str:
    return f"late: {', '.join(map(str, ranks)) or 'none'}"


def _figures(one: Used, said: str) -> str:
    return f"{one.wall:.1f} s, {one.megabytes:.0f} MB, {said}"


def report(
    source: Path, folder: Path, ranks: int, megabytes: int, hta: str | None
) -> str:
    """Write the ranks, measure all questions about them, and return the Markdown table."""
    planted = write_ranks(source, folder, ranks, megabytes)
    files = sorted(map(str, folder.glob("rank*.json")))
    total = sum(Path(file).stat().st_size for file in files) / 1e9
    sample = [file for file in files if Path(file).name != f"rank{planted.cut}.json"][
        :SAMPLED
    ]
    whys = [used([*FUSETUI, "why", "--json", file]).cpu for file in sample]
    cache = folder / "cache"
    first = used([*FUSETUI, "ranks", str(folder), "--json"], cache)
    again = used([*FUSETUI, "ranks", str(folder), "--json"], cache)
    missed = problems(json.loads(first.output), planted)
    alike = "the same" if again.output == first.output else "another"
    cores = len(os.sched_getaffinity(0))
    expected = sum(whys) / len(whys) * len(files) / cores
    seconds, peak = many_summaries(source)
    beside = beside_hta(hta, folder, planted) if hta else []
    rows = (
        (f"{len(files)} ranks, {total:.1f} GB", "on the clock", f"{first.wall:.1f} s"),
        ("", "of the CPUs", f"{first.cpu:.1f} s"),
        ("", f"single `why`, CPU seconds over {cores} cores", f"{expected:.1f} s"),
        (
            "",
            "CPU seconds over cores, as a share of that",
            f"{first.cpu / cores / expected:.2f}",
        ),
        ("", "on the clock, as a share of that", f"{first.wall / expected:.2f}"),
        ("", "peak memory of all processes", f"{first.megabytes:.0f} MB"),
        ("", "planted and not found", "; ".join(missed) or "nothing"),
        ("asked again", "on the clock", f"{again.wall:.2f} s, {alike} answer"),
        (f"{MANY:,} summaries of {EACH} collectives", "of the CPU", f"{seconds:.1f} s"),
        ("", "peak memory", f"{peak:.0f} MB"),
        *beside,
    )
    lines = [("what", "figure", ""), ("---", "---", "---"), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Make the ranks, measure all questions about them, and print the table. Unless
    --print is given, it is put into docs/benchmarks.md."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "source", type=Path, help="a real trace of rank 0 of 2, with NCCL's args"
    )
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--megabytes", type=int, default=50, help="of each")
    parser.add_argument("--hta", metavar="PYTHON", help="with HolisticTraceAnalysis")
    parser.add_argument("--print", action="store_true", help="do not change the page")
    parser.add_argument("--many", action="store_true", help=argparse.SUPPRESS)

    args = parser.parse_args()
    if args.many:
        print(answer_many(args.source))
        return

    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())

    with tempfile.TemporaryDirectory() as name:
        table = report(args.source, Path(name), args.ranks, args.megabytes, args.hta)

    text = (
        f"The machine had {os.cpu_count()} cores; the load average before the run was "
        f"{loads}.\n\n{table}"
    )
    print(text)

    if not args.print:
        put(PAGE, "ranks", text, __file__)


if __name__ == "__main__":
    main()
