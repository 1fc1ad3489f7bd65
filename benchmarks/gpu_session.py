"""Runs everything that needs a GPU, in one command of at most ten minutes.

    python -P benchmarks/gpu_session.py FOLDER [--archive FILE.tar.gz]

Runs the GPU part of the tests, the experiments of docs/experiments.md at their full
shapes, the pointwise kernel against a copy, two more captures (with CUDA graphs, with
stacks and memory), a loop that runs out of memory, with the snapshots of it, what the
kernels were predicted to take beside what they took, and two programs that are recorded
while they run.

A part that fails or takes too long is ended with all its processes, and the others
still run. The most important parts come first, and a part may use what the one before
it left of its time. After every part the results are packed into the archive, one file
of less than 16 MiB, for a machine from which only that can be copied;
FOLDER/left-out.txt names what did not fit. FOLDER has the run folders, whose traces are
scrubbed and may become samples, logs and session.json. The tables are in
docs/experiments.md and in FOLDER. Exit code 1 if any part failed.

fusetui need not be installed, but what it imports must be. For a machine without a
network, `make wheels` downloads that elsewhere, and there

    python -m pip install --no-index --find-links build/wheels -r
    build/wheels/requirements.txt

installs it beside the torch and triton that the machine has.

    python -P benchmarks/gpu_session.py FOLDER --device cpu --budget 120 \\
        --plant workloads=hang --plant attach=hang --plant pointwise=fail

rehearses it without a GPU: every limit shrinks with the budget, and a part for which
something is planted does that instead. The tables of docs/experiments.md stay as they
are.
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
"""How much of the budget packing after one part may take."""
MIN_PART_SECONDS = 1
"""With less time left, a part does not begin."""
ARCHIVE_BYTES = 16 * 2**20
"""The archive is smaller than this."""
HEADER_BYTES = 1024
"""An upper bound of the bytes that a member of the archive needs beside its content."""
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
"""The commands that a part can be replaced with."""


@dataclass(frozen=True)
class Piece:
    """One process and the longest it may take, in seconds."""

    name: str
    command: Sequence[str]
    limit: float


def parts(out: Path, device: str = "cuda", page: Path = PAGE) -> list[Piece]:
    """Return the parts to run, the most important first. Their limits and the packing
    fit into the budget."""
    runs = str(out / "runs")

    def experiments(*names: str) -> list[str]:
        script = [*PYTHON, "benchmarks/capture_experiments.py"]
        options = ["--device", device, "--runs", runs, "--page", str(page)]
        return [*script, *options, *names]

    def gpu_part(name: str, folder: str) -> list[str]:
        script = [*PYTHON, "benchmarks/gpu_parts.py"]
        return [*script, name, folder, "--device", device]

    tests = [*PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tests += ["tests/kernels/test_gpu.py", "tests/capture/test_gpu.py"]
    pointwise = [*PYTHON, "benchmarks/capture_pointwise.py"]
    pointwise += ["--out", str(out / "pointwise.json")]

    predictions = [*PYTHON, "benchmarks/predictions.py"]
    if device == "cuda":
        predictions += ["--runs", runs]

    workloads = experiments(
        "matmul-add",
        "linear",
        "mlp",
        "mlp-training",
        "split-stack",
    )
    partitioned_linear = experiments(
        "partitioned-linear",
        "paper-batch",
        "paper-n",
        "paper-in",
        "paper-out",
    )
    more_workloads = experiments(
        "partitioned-linear-training",
        "split-stack-training",
    )

    return [
        Piece("gpu-state", ["nvidia-smi", "-q"], 10),
        Piece("pointwise", pointwise, 55),
        Piece("workloads", workloads, 110),
        Piece("tests", tests, 70),
        Piece("partitioned-linear", partitioned_linear, 115),
        Piece("samples", gpu_part("samples", runs), 40),
        Piece("snapshots", gpu_part("snapshots", runs), 40),
        Piece("predictions", predictions, 25),
        Piece("more-workloads", more_workloads, 40),
        Piece("attach", gpu_part("attach", str(out / "attach")), 60),
    ]


def run(part: Piece, out: Path, seconds_left: float) -> dict[str, object]:
    """Run a part, whose output goes into a log file. Returns its `name`, `code` (None
    if it did not begin) and `seconds`."""
    limit = min(part.limit, seconds_left)
    begin = perf_counter()
    print(f"{part.name} ...", end=" ", flush=True)

    if limit < MIN_PART_SECONDS:
        print("no time left")
        return {"name": part.name, "code": None, "seconds": 0.0}

    with (out / "logs" / f"{part.name}.txt").open("w") as log:
        code = _run_command(part.command, limit, log.fileno())

    seconds = perf_counter() - begin
    outcome = "done" if code == 0 else f"failed ({code})"
    print(f"{outcome} in {seconds:.0f} s", flush=True)
    return {"name": part.name, "code": code, "seconds": round(seconds, 1)}


def _run_command(command: Sequence[str], limit: float, log: int) -> int | str:
    """Run a command for at most `limit` seconds. Returns its exit code, or why there is
    none. None of its processes is left afterwards."""
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
    """Kill a process, its process group, and all processes that it started."""
    started = find_descendants(process.pid)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in started:  # some may have made groups of their own
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def find_descendants(pid: int) -> list[int]:
    """Return the processes that a process started, and those that they started. Empty
    on systems without /proc."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # "PID (NAME) STATE PARENT ...", where the name may hold anything
            text = status.read_text(errors="replace")
            _, _, after_name = text.rpartition(")")
            parent = int(after_name.split()[1])
            children.setdefault(parent, []).append(int(status.parent.name))

    pids: list[int] = []
    unvisited = [pid]
    while unvisited:
        started = children.get(unvisited.pop(), [])
        pids += started
        unvisited += started

    return pids


def pack(out: Path, archive: Path) -> None:
    """Pack as many results as fit into the archive, the most important first.
    FOLDER/left-out.txt names those that do not fit.

    The archive is written beside its place and then moved, so that it is always
    complete.
    """
    packed: list[Path] = []

    left_out: list[str] = []
    bytes_left = ARCHIVE_BYTES - 2 * HEADER_BYTES
    for path in sorted(_find_results(out), key=lambda path: _packing_key(path, out)):
        needed = _bound_packed_bytes(path, bytes_left) + HEADER_BYTES
        if needed <= bytes_left:
            bytes_left -= needed
            packed.append(path)
        else:
            left_out.append(f"{path.relative_to(out)}: {path.stat().st_size:,} bytes")

    text = "\n".join(left_out) or "nothing"
    (out / "left-out.txt").write_text(
        f"Left out of the archive: {text}\n"[:HEADER_BYTES]
    )
    archive.parent.mkdir(parents=True, exist_ok=True)

    part = archive.with_name(f".{archive.name}.part")
    with tarfile.open(part, "w:gz", compresslevel=6) as tar:
        for path in dict.fromkeys([*packed, out / "left-out.txt"]):
            _add_file(tar, path, f"session/{path.relative_to(out)}")

    part.replace(archive)


def _find_results(out: Path) -> Iterator[Path]:
    """Yield the files of the session, without links and without runs that were not
    completed."""
    for folder, names, files in os.walk(out):
        names[:] = [name for name in names if not name.endswith(".part")]
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink() and not name.endswith((".part", ".tar.gz")):
                yield path


def _packing_key(path: Path, out: Path) -> tuple[int, int, str]:
    """Return a key that sorts the files: those of FIRST_TO_PACK, then logs and figures,
    then traces, with the smallest of each kind first."""
    size = path.stat().st_size
    if path.parent == out and path.name in FIRST_TO_PACK:
        return 0, FIRST_TO_PACK.index(path.name), path.name
    is_text = path.suffix in (".txt", ".json", ".csv", ".md")
    return 1 if is_text else 2, size, str(path)


def _bound_packed_bytes(path: Path, bytes_left: int) -> int:
    """Return an upper bound of the bytes that a file needs in the archive. A file that
    does not fit is not compressed to the end, to save time."""
    size = path.stat().st_size
    # Deflate stores what it cannot compress in blocks, with a few bytes for each.
    uncompressed = size + size // 1000
    if path.suffix in COMPRESSED or size > 100 * bytes_left:
        return uncompressed

    compressor = zlib.compressobj(6)
    compressed = 0
    with path.open("rb") as file:
        while chunk := file.read(2**20):
            compressed += len(compressor.compress(chunk))
            if compressed > bytes_left:
                return uncompressed

    return compressed + len(compressor.flush())


def _add_file(tar: tarfile.TarFile, path: Path, name: str) -> None:
    """Add a file to the archive as it is now, without owner and mode."""
    content = path.read_bytes()
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def session(
    pieces: Sequence[Piece], out: Path, archive: Path, budget: float, page: Path
) -> list[dict[str, object]]:
    """Run the parts within the budget in seconds, and pack all results after each. What
    a part leaves of its time is added to the limit of the next one, so later parts keep
    theirs."""
    begin = perf_counter()

    results: list[dict[str, object]] = []
    unused = 0.0
    for part in pieces:
        part_begin = perf_counter()
        seconds_left = budget - (part_begin - begin) - PACKING_SECONDS
        limit = part.limit + unused
        results.append(run(replace(part, limit=limit), out, seconds_left))
        unused = max(limit - (perf_counter() - part_begin), 0.0)
        (out / "session.json").write_text(json.dumps(results, indent=2) + "\n")
        if page != out / "experiments.md":
            shutil.copyfile(page, out / "experiments.md")
        pack(out, archive)

    return results


def planted(pieces: Sequence[Piece], plants: Sequence[str]) -> list[Piece]:
    """Return the parts, in which those that `NAME=hang` or `NAME=fail` names have
    another command. Raises ValueError for any other text."""
    part_of = {part.name: part for part in pieces}
    for plant in plants:
        name, _, kind = plant.partition("=")
        if name not in part_of or kind not in PLANTS:
            kinds = " or ".join(PLANTS)
            raise ValueError(f"'{plant}' is not PART={kinds}, of {', '.join(part_of)}")
        part_of[name] = replace(part_of[name], command=PLANTS[kind])
    return list(part_of.values())


def main() -> None:
    """Run all parts within the budget, print where the archive is, and exit with 1 if
    any part failed. On a CPU it is a rehearsal, in which limits shrink with the budget.
    """
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
        pieces = planted(parts(out, options.device, page), options.plant)
    except ValueError as error:
        parser.error(str(error))

    shortened = [replace(part, limit=part.limit * share) for part in pieces]
    results = session(shortened, out, archive, options.budget, page)
    print(f"{archive}: {archive.stat().st_size:,} bytes")
    sys.exit(0 if all(result["code"] == 0 for result in results) else 1)


if __name__ == "__main__":
    main()
