"""Everything that only a GPU can show, in one command of at most ten minutes.

    python -P benchmarks/gpu_session.py FOLDER [--archive FILE.tar.gz]

Runs the GPU part of the tests, the experiments of docs/experiments.md at their full
shapes, the pointwise kernel against a copy, two more captures (with CUDA graphs, with
stacks and memory), a loop that runs out of memory, with the snapshots of it, what the
kernels were predicted to take beside what they took, and two programs that are recorded
while they run.

A part that fails or takes too long is ended with all its processes, and the others
still run; the most important come first, and a part may use what the one before it left
of its time. After every part the results are packed into
the archive: what cannot come back otherwise is in that one file of less than 16 MiB,
which FOLDER/left-out.txt completes. The run folders, whose traces are scrubbed and may
become samples, logs and session.json are in FOLDER, the tables in docs/experiments.md
and in FOLDER. Exit code 1 if any part failed.

fusetui need not be installed, but what it imports must be. For a machine without a
network, `make wheels` downloads that elsewhere, and there

    python -m pip install --no-index --find-links build/wheels -r
    build/wheels/requirements.txt

installs it beside the torch and triton that the machine has.

    python -P benchmarks/gpu_session.py FOLDER --device cpu --budget 120 \\
        --plant workloads=hang --plant attach=hang --plant pointwise=fail

rehearses it without a GPU: every limit shrinks with the budget, and what a part would
do is replaced where something is planted. The tables of docs/experiments.md stay as
they are.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "experiments.md"
PYTHON = (sys.executable, "-P")
BUDGET_SECONDS = 585
PACKING_SECONDS = 2
"""What packing after one part may take of the budget."""
SHORTEST_PART_SECONDS = 1
ARCHIVE_BYTES = 16 * 2**20
"""The archive is smaller than this."""
HEADER_BYTES = 1024
"""An upper bound of what a member of the archive needs beside its content,
compressed."""
FIRST_TO_PACK = ("session.json", "experiments.md", "pointwise.json", "left-out.txt")
COMPRESSED = (".gz", ".zst", ".zip")

HANG = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("planted: a process and its child that do not end", flush=True)
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, "-c", sys.orig_argv[-1], "child"])
time.sleep(3600)
"""
PLANTS: Mapping[str, Sequence[str]] = {
    "hang": (sys.executable, "-c", HANG),
    "fail": (sys.executable, "-c", "raise SystemExit('planted: this part fails')"),
}
"""What a part can be replaced with."""


@dataclass(frozen=True)
class Piece:
    """One process and the longest it may take, in seconds."""

    name: str
    command: Sequence[str]
    limit: float


def parts(out: Path, device: str = "cuda", page: Path = PAGE) -> list[Piece]:
    """The parts to run, most important first; their limits and the packing fit into the
    budget."""
    runs = str(out / "runs")

    def experiments(*names: str) -> list[str]:
        script = [*PYTHON, "benchmarks/capture_experiments.py"]
        return [
            *script,
            "--device",
            device,
            "--runs",
            runs,
            "--page",
            str(page),
            *names,
        ]

    def of_parts(name: str, into: str) -> list[str]:
        return [*PYTHON, "benchmarks/gpu_parts.py", name, into, "--device", device]

    on_gpu = ["tests/kernels/test_gpu.py", "tests/capture/test_gpu.py"]
    tests = [*PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", *on_gpu]
    pointwise = [
        *PYTHON,
        "benchmarks/capture_pointwise.py",
        "--out",
        str(out / "pointwise.json"),
    ]
    predictions = [*PYTHON, "benchmarks/predictions.py"]
    predictions += ["--runs", runs] if device == "cuda" else []
    one_by_one = ("matmul-add", "linear", "mlp", "mlp-training", "split-stack")
    forms = ("partitioned-linear", "paper-batch", "paper-n", "paper-in", "paper-out")
    rest = ("partitioned-linear-training", "split-stack-training")
    return [
        Piece("gpu-state", ["nvidia-smi", "-q"], 10),
        Piece("pointwise", pointwise, 55),
        Piece("workloads", experiments(*one_by_one), 110),
        Piece("tests", tests, 70),
        Piece("partitioned-linear", experiments(*forms), 115),
        Piece("samples", of_parts("samples", runs), 40),
        Piece("snapshots", of_parts("snapshots", runs), 40),
        Piece("predictions", predictions, 25),
        Piece("more-workloads", experiments(*rest), 40),
        Piece("attach", of_parts("attach", str(out / "attach")), 60),
    ]


def run(part: Piece, out: Path, seconds_left: float) -> dict[str, object]:
    """Runs one part with its output in a log file; returns how it went."""
    limit = min(part.limit, seconds_left)
    begin = perf_counter()
    print(f"{part.name} ...", end=" ", flush=True)
    if limit < SHORTEST_PART_SECONDS:
        print("no time left")
        return {"name": part.name, "code": None, "seconds": 0.0}
    with (out / "logs" / f"{part.name}.txt").open("w") as log:
        code = _exit_code(part.command, limit, log.fileno())
    seconds = perf_counter() - begin
    print(
        f"{'done' if code == 0 else f'failed ({code})'} in {seconds:.0f} s", flush=True
    )
    return {"name": part.name, "code": code, "seconds": round(seconds, 1)}


def _exit_code(command: Sequence[str], limit: float, log: int) -> int | str:
    """The exit code of a command; or why there is none. No process of it is left."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    try:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return str(error)
    try:
        return process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        return "out of time"
    finally:
        end_group(process)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kills what is left of a process, of its group, and of the processes that they
    started."""
    started = descendants(process.pid)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in started:  # those that made a group of their own
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that they started; none without
    /proc."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name before the parenthesis may hold anything; state and parent follow
            # it.
            parent = int(
                status.read_text(errors="replace").rpartition(")")[2].split()[1]
            )
            children.setdefault(parent, []).append(int(status.parent.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            found.append(child)
            waiting.append(child)
    return found


def pack(out: Path, archive: Path) -> None:
    """Packs the results: what is small first, and as many of the others as fit.
    FOLDER/left-out.txt names those that do not."""
    chosen: list[Path] = []
    left_out: list[str] = []
    bytes_left = ARCHIVE_BYTES - 2 * HEADER_BYTES
    for path in sorted(_results(out), key=lambda path: _rank(path, out)):
        needed = _packed_bytes(path, bytes_left) + HEADER_BYTES
        if needed <= bytes_left:
            bytes_left -= needed
            chosen.append(path)
        else:
            left_out.append(f"{path.relative_to(out)}: {path.stat().st_size:,} bytes")
    text = "\n".join(left_out) or "nothing"
    (out / "left-out.txt").write_text(
        f"Left out of the archive: {text}\n"[:HEADER_BYTES]
    )
    archive.parent.mkdir(parents=True, exist_ok=True)
    part = archive.with_name(f".{archive.name}.part")
    with tarfile.open(part, "w:gz", compresslevel=6) as tar:
        for path in dict.fromkeys([*chosen, out / "left-out.txt"]):
            _add(tar, path, f"session/{path.relative_to(out)}")
    part.replace(archive)


def _results(out: Path) -> Iterator[Path]:
    """The files of the session, without links and without runs that were not
    completed."""
    for folder, names, files in os.walk(out):
        names[:] = [name for name in names if not name.endswith(".part")]
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink() and not name.endswith((".part", ".tar.gz")):
                yield path


def _rank(path: Path, out: Path) -> tuple[int, int, str]:
    """What is packed first: how it went, the logs and figures of the runs, then small
    traces."""
    size = path.stat().st_size
    if path.parent == out and path.name in FIRST_TO_PACK:
        return 0, FIRST_TO_PACK.index(path.name), path.name
    is_text = path.suffix in (".txt", ".json", ".csv", ".md")
    return 1 if is_text else 2, size, str(path)


def _packed_bytes(path: Path, bytes_left: int) -> int:
    """An upper bound of what a file needs in the archive; its size where it surely does
    not fit."""
    size = path.stat().st_size
    # the blocks of deflate that are stored as they are
    incompressible = size + size // 1000
    if path.suffix in COMPRESSED or size > 100 * bytes_left:
        return incompressible
    packer = zlib.compressobj(6)
    packed = 0
    with path.open("rb") as file:
        while piece := file.read(2**20):
            packed += len(packer.compress(piece))
            if packed > bytes_left:
                return incompressible
    return packed + len(packer.flush())


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    """A file as it is now, without owner and mode."""
    content = path.read_bytes()
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def session(
    made: Sequence[Piece], out: Path, archive: Path, budget: float, page: Path
) -> list[dict[str, object]]:
    """Runs the parts within the budget in seconds; after each, the archive has what
    there is. What a part leaves of its time the next one may use: those behind it keep
    theirs."""
    begin = perf_counter()
    results: list[dict[str, object]] = []
    unused = 0.0
    for part in made:
        part_begin = perf_counter()
        seconds_left = budget - (part_begin - begin) - PACKING_SECONDS
        longer = replace(part, limit=part.limit + unused)
        results.append(run(longer, out, seconds_left))
        unused = max(longer.limit - (perf_counter() - part_begin), 0.0)
        (out / "session.json").write_text(json.dumps(results, indent=2) + "\n")
        if page != out / "experiments.md":
            shutil.copyfile(page, out / "experiments.md")
        pack(out, archive)
    return results


def planted(made: Sequence[Piece], plants: Sequence[str]) -> list[Piece]:
    """The parts, with others in the place of those that `NAME=hang` or `NAME=fail`
    names. Raises ValueError for another text."""
    found = {part.name: part for part in made}
    for plant in plants:
        name, _, kind = plant.partition("=")
        if name not in found or kind not in PLANTS:
            parts_known, kinds = ", ".join(found), " or ".join(PLANTS)
            raise ValueError(f"'{plant}' is not PART={kinds}, of {parts_known}")
        found[name] = replace(found[name], command=PLANTS[kind])
    return list(found.values())


def main() -> None:
    """Runs the parts, and says where the archive is."""
    parser = argparse.ArgumentParser(description="Everything that only a GPU can show.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--archive", type=Path, help="FOLDER.tar.gz by default")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument(
        "--budget", type=float, default=BUDGET_SECONDS, metavar="SECONDS"
    )
    parser.add_argument(
        "--plant", action="append", default=[], metavar="PART=hang|fail"
    )
    options = parser.parse_args()
    out = options.folder.resolve()
    archive = (options.archive or out.with_name(f"{out.name}.tar.gz")).resolve()
    (out / "logs").mkdir(parents=True, exist_ok=True)
    page = PAGE
    if options.device == "cpu":  # a rehearsal
        page = out / "experiments.md"
        shutil.copyfile(PAGE, page)
    share = options.budget / BUDGET_SECONDS
    try:
        made = planted(parts(out, options.device, page), options.plant)
    except ValueError as error:
        parser.error(str(error))
    shortened = [replace(part, limit=part.limit * share) for part in made]
    results = session(shortened, out, archive, options.budget, page)
    print(f"{archive}: {archive.stat().st_size:,} bytes")
    sys.exit(0 if all(result["code"] == 0 for result in results) else 1)


if __name__ == "__main__":
    main()
