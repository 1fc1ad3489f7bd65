"""Real jobs of gloo that hang in a known way, and what `fusetui hang` says of their dumps.

    python -P benchmarks/hanging_jobs.py [--case NAME] [--keep FOLDER] [--put]

Each rank is a process of its own on this machine; it dumps its flight recorder after some
seconds and ends. --put places the table into docs/hang.md. An answer is right if its
verdict and the ranks that it names first are those that were planted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.pages import put

from fusetui.analysis.hang.answer import why_it_hangs
from fusetui.analysis.hang.model import HangAnswer, Verdict
from fusetui.commands.sources import dumps_in
from fusetui.text.printable import markdown_table
from fusetui.trace.flight.reading import read_dumps

if TYPE_CHECKING:
    import torch

PAGE = Path(__file__).parents[1] / "docs" / "hang.md"
STEPS = 3  # that all ranks take before something happens
DUMP_AFTER_S = 6.0  # a collective of this job takes milliseconds
JOB_TIMEOUT_S = 300.0  # with the import of torch on a busy machine
ELEMENTS = 8


class Rank(msgspec.Struct):
    """What a rank has to work with."""

    number: int
    count: int
    low: Any  # the group of the lower half of the ranks
    high: Any  # the group of the others

    @property
    def half(self) -> Any:
        return self.low if self.number < self.count // 2 else self.high


class Case(msgspec.Struct, frozen=True):
    """`act` is what each rank does after the steps; `spoil` changes the folder of the
    dumps afterwards. `named` are the ranks that must be named first."""

    name: str
    what: str
    act: Callable[[Rank], None]
    verdict: Verdict
    named: tuple[int, ...]
    ranks: int = 4
    ring: int = 2000
    spoil: Callable[[Path], None] = lambda folder: None


def _dist() -> Any:
    import torch.distributed

    return torch.distributed


def _ones(**options: Any) -> torch.Tensor:
    import torch

    return torch.ones(ELEMENTS, **options)


def all_reduce(group: Any = None) -> None:
    _dist().all_reduce(_ones(), group=group)


def step(rank: Rank) -> None:
    all_reduce()
    all_reduce(rank.half)


def sleeps(number: int) -> Callable[[Rank], None]:
    """Return what each rank does in a job in which rank `number` sleeps and the others
    wait in an all_reduce."""

    def act(rank: Rank) -> None:
        if rank.number == number:
            time.sleep(JOB_TIMEOUT_S)
        all_reduce()

    return act


def ends_well(rank: Rank) -> None:
    all_reduce()


def exits(rank: Rank) -> None:
    """End the process of rank 2 at once; the other ranks wait in an all_reduce."""
    if rank.number == 2:
        os._exit(0)
    all_reduce()


def raises(rank: Rank) -> None:
    """Raise ValueError on rank 1; the other ranks wait in an all_reduce."""
    if rank.number == 1:
        raise ValueError("the data of this rank are damaged")
    all_reduce()


def calls_another_collective(rank: Rank) -> None:
    """Call barrier on rank 2 where the others call all_reduce, so that the ranks do not
    match."""
    if rank.number == 2:
        _dist().barrier()
    else:
        all_reduce()
    all_reduce()


def broadcasts_more(rank: Rank) -> None:
    """Broadcast twice as many elements from rank 1 as from the others."""
    import torch

    _dist().broadcast(torch.ones(ELEMENTS * (2 if rank.number == 1 else 1)), src=0)


def reduces_another_type(rank: Rank) -> None:
    """Reduce int32 on rank 1, and float32 on the others."""
    import torch

    dtype = torch.int32 if rank.number == 1 else torch.float32
    _dist().all_reduce(_ones(dtype=dtype))


def broadcasts_from_another_root(rank: Rank) -> None:
    """Broadcast from root 1 on rank 2, and from root 0 on the others."""
    _dist().broadcast(_ones(), src=1 if rank.number == 2 else 0)
    all_reduce()


def waits_in_another_group(rank: Rank) -> None:
    """Let rank 3 sleep; rank 2 waits for it in their group, and the others wait for
    rank 2."""
    if rank.number == 3:
        time.sleep(JOB_TIMEOUT_S)
    if rank.number == 2:
        all_reduce(rank.half)
    all_reduce()


def enters_two_groups_in_another_order(rank: Rank) -> None:
    """Enter two groups on rank 0 in the opposite order of the others, which is a
    deadlock."""
    if rank.number == 0:
        all_reduce(rank.low)
        all_reduce()
    else:
        all_reduce()
        all_reduce(rank.half)


def receives_what_nobody_sends(rank: Rank) -> None:
    """Wait on rank 2 for a message of rank 3 that is never sent."""
    if rank.number == 2:
        _dist().recv(_ones(), src=3)
    all_reduce()


def turns_many_times(rank: Rank) -> None:
    """Run more collectives than the ring buffer holds, then let rank 1 sleep."""
    for _ in range(40):
        all_reduce(rank.half)
    sleeps(1)(rank)


def without_file(folder: Path) -> None:
    (folder / "rank_1").unlink()


def with_empty_file(folder: Path) -> None:
    (folder / "rank_1").write_bytes(b"")


def with_damaged_file(folder: Path) -> None:
    """Cut the dump of rank 1 to its first half."""
    whole = (folder / "rank_1").read_bytes()
    (folder / "rank_1").write_bytes(whole[: len(whole) // 2])


CASES = (
    Case("healthy", "the job ended", ends_well, "none", ()),
    Case("sleeps", "rank 1 sleeps", sleeps(1), "missing", (1,)),
    Case("exits", "rank 2 exits and writes no dump", exits, "undecided", (2,)),
    Case("raises", "rank 1 raises", raises, "missing", (1,)),
    Case(
        "collective",
        "rank 2 calls barrier where the others call all_reduce",
        calls_another_collective,
        "mismatch",
        (2,),
    ),
    Case("sizes", "rank 1 broadcasts twice as much", broadcasts_more, "mismatch", (1,)),
    Case("dtype", "rank 1 reduces int32", reduces_another_type, "mismatch", (1,)),
    Case(
        "root",
        "rank 2 broadcasts from another root",
        broadcasts_from_another_root,
        "undecided",
        (),
    ),
    Case(
        "subgroup",
        "rank 3 sleeps, 2 waits for it in a group, the others for 2",
        waits_in_another_group,
        "missing",
        (3,),
    ),
    Case(
        "cycle",
        "rank 0 enters two groups in another order",
        enters_two_groups_in_another_order,
        "deadlock",
        (0, 1),
    ),
    Case(
        "receive",
        "rank 2 receives what nobody sends",
        receives_what_nobody_sends,
        "missing",
        (2,),
    ),
    Case("sixteen", "rank 11 of 16 sleeps", sleeps(11), "missing", (11,), ranks=16),
    Case(
        "ring",
        "rank 1 sleeps, a ring of 20 entries",
        turns_many_times,
        "missing",
        (1,),
        ring=20,
    ),
    Case(
        "no file",
        "rank 1 sleeps, its file is missing",
        sleeps(1),
        "undecided",
        (1,),
        spoil=without_file,
    ),
    Case(
        "empty file",
        "rank 1 sleeps, its file is empty",
        sleeps(1),
        "undecided",
        (1,),
        spoil=with_empty_file,
    ),
    Case(
        "damaged file",
        "rank 1 sleeps, half of its file is there",
        sleeps(1),
        "undecided",
        (1,),
        spoil=with_damaged_file,
    ),
)


def play(case: Case, folder: Path) -> HangAnswer:
    """Run all ranks of the job until they end, and spoil the dumps in `folder` as the
    case says. Returns why the job hangs according to them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    environment = os.environ | {
        "TORCH_FR_BUFFER_SIZE": str(case.ring),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(case.ranks),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-P", __file__, "--case", case.name]
    command += ["--keep", str(folder)]

    processes = [
        subprocess.Popen(
            [*command, "--rank", str(rank)],
            env=environment | {"RANK": str(rank)},
            stderr=subprocess.DEVNULL,
        )
        for rank in range(case.ranks)
    ]
    for process in processes:
        process.wait(JOB_TIMEOUT_S)

    case.spoil(folder)
    return why_it_hangs(read_dumps(dumps_in(str(folder))))


def named(answer: HangAnswer) -> tuple[int, ...]:
    """Return the ranks that the answer names first: of a mismatch the last side, of a
    deadlock its circle, else the culprits."""
    if answer.verdict == "mismatch":
        return answer.mismatches[0].sides[-1].ranks
    if answer.verdict == "deadlock":
        return answer.cycle
    return tuple(culprit.rank for culprit in answer.culprits)


def run_rank(case: Case, number: int, folder: Path) -> None:
    """Run one rank of the job: some steps, then what the case does. It ends this
    process after the dump was written."""
    dist = _dist()
    dist.init_process_group("gloo", timeout=timedelta(seconds=JOB_TIMEOUT_S))
    half = case.ranks // 2
    low = dist.new_group(list(range(half)), group_desc="low")
    high = dist.new_group(list(range(half, case.ranks)), group_desc="high")

    rank = Rank(number, case.ranks, low, high)
    for _ in range(STEPS):
        step(rank)

    dumping = threading.Thread(target=_dump, args=(folder / f"rank_{number}",))
    dumping.start()

    with suppress(RuntimeError, ValueError):  # a peer went away, or the case raises
        case.act(rank)

    dumping.join()


def _dump(path: Path) -> None:
    """Write the dump of this rank after some seconds and end the process. It waits
    before that, so that the others dump before their peer is gone."""
    from torch._C._distributed_c10d import _dump_fr_trace  # type: ignore[attr-defined]

    time.sleep(DUMP_AFTER_S)
    path.with_suffix(".part").write_bytes(_dump_fr_trace())
    path.with_suffix(".part").rename(path)
    time.sleep(DUMP_AFTER_S)  # the others dump before their peer goes away
    os._exit(0)


def table(results: Sequence[tuple[Case, HangAnswer]]) -> str:
    """Return a Markdown table of all cases, and whether each answer is right."""
    rows = []
    for case, answer in results:
        ranks = ", ".join(map(str, named(answer))) or "nobody"
        is_right = answer.verdict == case.verdict and named(answer) == case.named
        verdict = f"`{answer.verdict}`"
        rows.append([case.what, verdict, ranks, "yes" if is_right else "no"])
    titles = ["what happened", "verdict", "named", "right"]
    return "\n".join(markdown_table(titles, rows, left=range(len(titles))))


def main() -> None:
    """Play the cases and print the table; with --put it is written into the page. With
    --rank, this process is a rank."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", metavar="NAME", help="only this one")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keeps the dumps")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--put", action="store_true", help="into the page")

    args = parser.parse_args()
    cases = [case for case in CASES if args.case in (None, case.name)]
    if args.rank is not None:
        run_rank(cases[0], args.rank, args.keep)
        return

    results = []
    for case in cases:
        folder = Path(tempfile.mkdtemp())
        results.append((case, play(case, folder)))
        print(case.name, results[-1][1].verdict, named(results[-1][1]), flush=True)
        if args.keep:
            shutil.copytree(folder, args.keep / case.name.replace(" ", "_"))
        shutil.rmtree(folder)

    text = table(results)
    print(text)

    if args.put:
        put(PAGE, "hanging jobs", text, __file__)


if __name__ == "__main__":
    main()
