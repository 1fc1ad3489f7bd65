"""What an open door costs a program: writes the table of docs/attach.md.

python -P benchmarks/attaching.py [--pairs 10]

The same small training loop, in a process of its own each time: with the door closed,
open without anybody behind it, and open with fusetui listening, in turn. Steps per
second are those of the median step, by the CPU time of the thread that makes them, so
that other programs disturb it little; what all other threads of the process take beside
it, that of libkineto included, is told.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put

from fusetui.attach.daemon_socket import DaemonSocket, RecordingRequest
from fusetui.attach.processes import FOLDER, OPEN, QUIET, process
from fusetui.attach.recording import Recording
from fusetui.commands.record import TURN_SECONDS
from fusetui.commands.run import sockets
from fusetui.text.figures import signed_percent

PAGE = Path(__file__).resolve().parents[1] / "docs" / "attach.md"
SECONDS = 11  # two questions at least: one is asked every 5 s
LOOP = f"""
import json, time, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(16, 64)
def step():
    optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()
for _ in range(200):
    step()
begin, process, thread, taken = time.time(), time.process_time(), time.thread_time(), []
while time.time() < begin + {SECONDS}:
    before = time.thread_time_ns(); step(); taken.append(time.thread_time_ns() - before)
others = time.process_time() - process - (time.thread_time() - thread)
print(json.dumps([1e9 / sorted(taken)[len(taken) // 2], 1e3 * others / {SECONDS}]))
"""


def main() -> None:
    """Measure the training loop in all three situations in turn, and write the table
    into docs/attach.md."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)

    pairs = parser.parse_args().pairs
    found: dict[str, list[list[float]]] = {
        "closed": [],
        "open, nobody listens": [],
        LISTENS: [],
    }
    for _ in range(pairs):
        for name, rates in found.items():
            rates.append(_rates(name))

    closed = found["closed"]
    rows = []
    for name, rates in found.items():
        changes = sorted(
            rate[0] / base[0] - 1 for rate, base in zip(rates, closed, strict=True)
        )
        each = f"{changes[0]:+.1%} to {changes[-1]:+.1%}".replace("%", " %")
        change = (
            "" if rates is closed else f"{signed_percent(median(changes), 1)} ({each})"
        )
        steps, others = (median(rate[i] for rate in rates) for i in (0, 1))
        rows.append(f"| {name} | {steps:,.0f} | {change} | {others:.2f} ms per s |")

    head = "| door | steps per s | change, median of pairs (range) | CPU time of other threads |\n"
    head += "|---|--:|--:|--:|\n"
    note = f"The cases alternated in {pairs} rounds of {SECONDS} s each, with one CPU thread."
    put(PAGE, "overhead", f"{head}{chr(10).join(rows)}\n\n{note}\n", __file__)


LISTENS = "open, fusetui listens"


def _rates(name: str) -> list[float]:
    """Run the loop in a process of its own, in the situation `name`. Returns its steps
    per second, and the CPU time of other threads in ms per second."""
    with sockets() as folder:
        environment = dict(os.environ)
        if name != "closed":
            environment |= {OPEN: "1", FOLDER: folder, QUIET: "99"}
        with _listening(folder if name == LISTENS else ""):
            line = [sys.executable, "-P", "-c", LOOP]
            out = subprocess.run(
                line, env=environment, check=True, capture_output=True
            ).stdout

    rates: list[float] = json.loads(out)
    return rates


@contextmanager
def _listening(folder: str) -> Iterator[None]:
    """Within the block, wait for another process to ask for a recording, as `record`
    does; none asks. Nothing is done if `folder` is ""."""
    if not folder:
        yield
        return

    done = threading.Event()

    def wait(found: Recording) -> None:
        while not done.is_set():
            found.turn(TURN_SECONDS)

    with closing(DaemonSocket(folder)) as door:
        this = process(os.getpid())
        assert this is not None
        found = Recording([door], Path(folder), RecordingRequest(), [this])
        thread = threading.Thread(target=wait, args=(found,))
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


if __name__ == "__main__":
    main()
