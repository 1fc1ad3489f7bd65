"""Whether programs of ten kinds are recorded rightly at the first try, or refused with
the true reason: writes the table of docs/attach.md.

    python -P benchmarks/real_programs.py [--only KIND ...] [--way WAY ...] [--jobs N]
    [--write]

Each program is a process of its own, as users write it, on the CPU. It is recorded in
three ways: `fusetui run`, `fusetui record` of the program that runs already, and
`:record` of the app, whose effect is performed without a screen. A trace is right if it
holds operations of the loop of the program, not those of its start: each loop annotates
its steps with `record_function("work")`.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put

from fusetui.attach.processes import FOLDER, OPEN, QUIET, with_torch
from fusetui.commands.run import sockets
from fusetui.trace.model.report import never
from fusetui.tui import saving
from fusetui.tui.state.state import Record

PAGE = Path(__file__).resolve().parents[1] / "docs" / "attach.md"
WAYS = ("run", "record", "app")
PYTHON = (sys.executable, "-P")
FUSETUI = (*PYTHON, "-m", "fusetui")
WORK = b'"name": "work"'
STOP = "stop"  # a file beside the program that ends it
# how long a program computes at most; it is ended once there is an outcome
RUNS_S = 150
READY_S = 90.0  # within which a program has loaded torch

HEAD = f"""
import os, time, torch
from torch.profiler import profile, record_function, schedule
torch.set_num_threads(1)
END = time.time() + {RUNS_S}
def goes_on():
    return time.time() < END and not os.path.exists("{STOP}")
model, x = torch.nn.Linear(64, 64), torch.randn(16, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def train(batch):
    with record_function("work"):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
    return loss
"""
SLOW_LOADER = """
time.sleep(14)  # reads the list of files
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 10_000
    def __getitem__(self, index): time.sleep(0.02); return torch.randn(64)
for batch in torch.utils.data.DataLoader(Slow(), batch_size=16):
    train(batch)
    if not goes_on(): break
"""
ITEM = """
total = 0.0
while goes_on():
    total += train(x).item()
    time.sleep(0.002)
"""
RECOMPILES = """
compiled = torch.compile(model, dynamic=False, backend="aot_eager")
rows = 0
while goes_on():
    rows = rows % 64 + 1
    with record_function("work"):
        compiled(torch.randn(rows, 64)).sum().backward()
    time.sleep(0.002)
"""
GRAPH_BREAKS = """
@torch.compile(backend="aot_eager")
def forward(batch):
    hidden = torch.relu(batch @ batch.T)
    if hidden.sum().item() > 0:  # breaks the graph
        hidden = hidden * 2
    torch._dynamo.graph_break()
    return hidden.mean()
while goes_on():
    with record_function("work"):
        forward(x)
    time.sleep(0.002)
"""
TORCHRUN = """
import torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 3:
    time.sleep(4)  # its files are on a slow disk
dist.barrier()
while True:
    train(x)
    for weight in model.parameters():
        dist.all_reduce(weight.grad)
    go_on = torch.tensor([goes_on()])
    dist.broadcast(go_on, 0)
    time.sleep(0.005)
    if not go_on: break
dist.destroy_process_group()
"""
SERVER = """
import threading, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        with torch.no_grad(), record_function("work"):
            body = str(model(x).sum().item()).encode()
        self.send_response(200); self.end_headers(); self.wfile.write(body)
    def log_message(self, *_): pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
threading.Thread(target=server.serve_forever, daemon=True).start()
address = f"http://127.0.0.1:{server.server_address[1]}"
time.sleep(12)  # nobody asks at first
while goes_on():
    urllib.request.urlopen(address).read()
    time.sleep(1.5)
"""
FORKS = """
import multiprocessing
def worker():
    while goes_on():
        train(x)
        time.sleep(0.002)
workers = [multiprocessing.get_context("fork").Process(target=worker) for _ in range(2)]
for one in workers: one.start()
for one in workers: one.join()
"""
OWN_PROFILER = """
with profile(schedule=schedule(wait=1, warmup=1, active=3_000, repeat=1)) as profiler:
    begun = time.time()
    while time.time() < begun + 15:
        train(x); profiler.step(); time.sleep(0.005)
while goes_on():
    train(x); time.sleep(0.005)
"""
ALWAYS_PROFILED = """
with profile(schedule=schedule(wait=0, warmup=1, active=200)) as profiler:
    while goes_on():
        train(x); profiler.step(); time.sleep(0.005)
"""
JUPYTER = """
import json, sys
from pathlib import Path
cells = [SETUP, "time.sleep(10)", "while goes_on():\\n    train(x); time.sleep(0.005)"]
import nbformat
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
nbformat.write(notebook, sys.argv[1])
"""
NO_TORCH = """
import time
total = 0
end = time.time() + 45  # it still runs once `record` has started on a busy machine
while time.time() < end:
    total += sum(range(1000)); time.sleep(0.01)
"""


@dataclass(frozen=True)
class Kind:
    """`reason`: what a refusal must say where the program cannot be recorded;
    `processes`: how many traces there must be; `job`: the name that `record --job`
    takes."""

    name: str
    source: str
    reason: str = ""
    processes: int = 1
    launcher: tuple[str, ...] = ()


KINDS = (
    Kind("slow loader", HEAD + SLOW_LOADER),
    Kind("`.item()` in the loop", HEAD + ITEM),
    Kind("recompiles", HEAD + RECOMPILES),
    Kind("graph breaks", HEAD + GRAPH_BREAKS),
    Kind(
        "torchrun, 4 ranks",
        HEAD + TORCHRUN,
        processes=4,
        launcher=(
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "4",
        ),
    ),
    Kind("server loop", HEAD + SERVER),
    Kind("forked workers", HEAD + FORKS, reason="forks? of .* cannot be recorded"),
    Kind("its own torch.profiler, once", HEAD + OWN_PROFILER),
    Kind(
        "its own torch.profiler, always",
        HEAD + ALWAYS_PROFILED,
        reason="it profiles itself|its own torch.profiler cancelled",
    ),
    Kind("Jupyter kernel", HEAD + JUPYTER),
    Kind(
        "no torch",
        NO_TORCH,
        reason="no process of it asked|has not loaded torch|No process",
    ),
)


def main() -> None:
    """Record all kinds of programs in all ways, and print the table; with --write it
    goes into the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[kind.name for kind in KINDS])
    parser.add_argument("--way", nargs="*", choices=WAYS, default=WAYS)
    parser.add_argument("--jobs", type=int, default=6, help="programs at once")
    parser.add_argument(
        "--write", action="store_true", help="put the table into the page"
    )

    given = parser.parse_args()
    kinds = [kind for kind in KINDS if kind.name in given.only]
    with ProcessPoolExecutor(given.jobs) as pool:
        tries = {
            (kind.name, way): pool.submit(tried, kind, way)
            for kind in kinds
            for way in given.way
        }
        rows = []
        for kind in kinds:
            outcomes = [tries[kind.name, way].result() for way in given.way]
            rows.append(f"| {kind.name} | {' | '.join(outcomes)} |")
            print(rows[-1], file=sys.stderr, flush=True)

    if given.write:
        rows = _with_rows_of_page(rows)

    head = f"| program | {' | '.join(NAMES[way] for way in given.way)} |\n"
    head += f"|---|{'---|' * len(given.way)}\n"
    table = head + "\n".join(rows) + "\n"
    print(table)

    if given.write:
        put(PAGE, "programs", table, __file__)


OUTCOME = re.compile(r": (not )?recorded[,:]")  # in a line about a process
NAMES = {
    "run": "`fusetui run`",
    "record": "`fusetui record`",
    "app": "`:record` in the app",
}


def _with_rows_of_page(rows: Sequence[str]) -> list[str]:
    """Return these rows and, for kinds that were not tried, the rows that the page has
    already, in the order of KINDS."""
    page = PAGE.read_text(encoding="utf-8").splitlines()
    found = {row.split(" | ")[0]: row for row in (*page, *rows) if row.startswith("| ")}
    return [found[f"| {kind.name}"] for kind in KINDS if f"| {kind.name}" in found]


@dataclass(frozen=True)
class Outcome:
    """What a way to record came to: its exit code, what it said, and where traces would
    be."""

    code: int
    said: str
    folder: Path


def tried(kind: Kind, way: str) -> str:
    """Record a program in one way, and return the outcome as a cell of the table. What
    is wrong is printed on stderr."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        outcome = {"run": _run, "record": _record, "app": _app}[way](kind, place)
        traces = (
            sorted(outcome.folder.rglob("*.json")) if outcome.folder.is_dir() else []
        )
        right = [one for one in traces if WORK in one.read_bytes()]

    wanted = 1 if way == "app" else kind.processes

    if kind.reason:
        is_refused = outcome.code != 0 and not traces
        if is_refused and re.search(kind.reason, _final(outcome.said)):
            return "refused, true reason"
        print(f"{kind.name}, {way}: {outcome.said}", file=sys.stderr)
        return (
            f"**not refused rightly**: exit code {outcome.code}, {len(traces)} traces"
        )

    if outcome.code == 0 and len(right) == len(traces) == wanted:
        return "recorded" if wanted == 1 else f"recorded, {wanted} of {wanted}"

    print(f"{kind.name}, {way}: {outcome.said}", file=sys.stderr)
    return f"**{len(right)} of {wanted} right**, exit code {outcome.code}"


def _final(said: str) -> str:
    """Return what was said without lines about what is still being waited for."""
    lines = said.splitlines()
    return "\n".join(line for line in lines if ": waiting for it to ask" not in line)


def _command(kind: Kind, place: Path) -> list[str]:
    """Write the files of a program, and return the command with which its user starts
    it."""
    file = place / f"{place.name}.py"  # a name of its own, for --job
    if kind.name.startswith("Jupyter"):
        notebook = place / "notebook.ipynb"
        maker = kind.source.removeprefix(HEAD).replace("SETUP", repr(HEAD))
        subprocess.run([*PYTHON, "-c", maker, str(notebook)], check=True)
        execute = "from nbclient.cli import main; main()"
        return [sys.executable, "-c", execute, "--allow-errors", str(notebook)]
    file.write_text(kind.source, encoding="utf-8")
    return [sys.executable, *kind.launcher, str(file)]


def _run(kind: Kind, place: Path) -> Outcome:
    """Record a program with `fusetui run`, and end it once all of its processes have an
    outcome."""
    out = place / "traces"

    line = [
        *FUSETUI,
        "run",
        "--no-open",
        "--out",
        str(out),
        "--",
        *_command(kind, place),
    ]
    said = place / "said.txt"
    with said.open("wb") as stream:
        child = subprocess.Popen(
            line, stderr=stream, stdout=stream, cwd=place, env=_environment()
        )
        while child.poll() is None:
            time.sleep(0.2)
            text = said.read_text(errors="replace")
            if len(OUTCOME.findall(text)) >= kind.processes:
                (place / STOP).touch()

    code = child.returncode
    return Outcome(code, said.read_text(errors="replace"), out)


def _environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


@contextmanager
def _running(kind: Kind, place: Path, sock: str) -> Iterator[subprocess.Popen[bytes]]:
    """Within the block, run a program with on-demand profiling switched on. It has
    loaded torch when the block begins, and is killed at the end."""
    environment = _environment() | {OPEN: "1", FOLDER: sock, QUIET: "99"}
    line = _command(kind, place)
    with subprocess.Popen(
        line, cwd=place, env=environment, stdout=-3, stderr=-3, start_new_session=True
    ) as child:
        until = time.monotonic() + READY_S
        while time.monotonic() < until and child.poll() is None:
            if len(with_torch(sock)) >= kind.processes or kind.name == "no torch":
                break
            time.sleep(0.2)
        time.sleep(1)
        try:
            yield child
        finally:
            os.killpg(child.pid, signal.SIGKILL)


def _record(kind: Kind, place: Path) -> Outcome:
    """Record a running program with `fusetui record`, by the name of its job. A program
    without a name of its own is recorded by its PID."""
    out = place / "traces"
    with sockets() as sock, _running(kind, place, sock) as child:
        if kind.name == "no torch":
            wanted = ["--pid", str(child.pid)]
        elif kind.name.startswith("Jupyter"):  # all notebooks have one name
            wanted = ["--pid", str(with_torch(sock)[0].pid)]
        else:
            wanted = ["--job", f"{place.name}.py"]
        line = [*FUSETUI, "record", "--no-open", *wanted, "--out", str(out)]
        done = subprocess.run(line, capture_output=True, text=True, cwd=place)

    return Outcome(done.returncode, done.stderr, out)


def _app(kind: Kind, place: Path) -> Outcome:
    """Record a running program as `:record` of the app does, without a screen."""
    posted: list[Any] = []
    with sockets() as sock, _running(kind, place, sock) as child:
        listed = [one.pid for one in with_torch(sock)]
        before = Path.cwd()
        os.chdir(place)
        try:
            saving.record(Record((listed or [child.pid])[0]), posted.append, never)
        finally:
            os.chdir(before)

    last = posted[-1]
    paths: Sequence[str] = last.keywords.get("paths", ())
    said = last.keywords.get("sentence", "")
    return Outcome(0 if paths else 1, said, place)


if __name__ == "__main__":
    main()
