"""Where and how a run was made: the device, its clocks and driver, the user's commit,
the command; and what is private in the record and the trace, removed by means of
`fusetui.trace.scrub`."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any
from warnings import catch_warnings, filterwarnings

from fusetui import __version__
from fusetui.trace.read.source import open_source
from fusetui.trace.scrub.document import ScrubbedDocument, this_machine
from fusetui.trace.scrub.texts import Texts

from .errors import CaptureError
from .options import Options, check_device, public
from .record import FORMAT, RunRecord

_NOISE = (
    r".*TensorFloat32 tensor cores.*",
    r".*torch\.jit\.script.*is deprecated.*",
    r".*Profiler clears events at the end of each cycle.*",
    r".*pkg_resources is deprecated.*",
)
"""Warnings of torch that are irrelevant to the user of a capture."""


LARGE_CACHE_BYTES = 64 * 2**20
"""More than the L2 cache of most GPUs: what is assumed where torch does not say."""


@dataclass(frozen=True)
class CaptureDevice:
    """`kind` is torch's name, cpu or cuda; `name` is for users. `cache_bytes` is the
    size of a GPU's L2 cache, which inputs must exceed; 0 on a CPU. `capability` is the
    compute capability of an NVIDIA GPU, None of anything else. `index` is the number of
    a GPU that was asked for, None where it is torch's current one."""

    kind: str
    name: str
    cache_bytes: int = 0
    capability: tuple[int, int] | None = None
    index: int | None = None


def load_torch() -> Any:
    """torch, with its own log and the profiler's switched off unless the user set their
    levels. Raises CaptureError if torch is not installed."""
    # Both levels are read once, when torch is loaded; the log lines would end up among
    # ours.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        import torch
    except ImportError as error:
        raise CaptureError(
            f"capture needs torch, which cannot be imported ({error}): "
            "install it with pip install 'fusetui[capture]'."
        ) from error
    return torch


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Suppresses known irrelevant warnings of torch; all others are shown."""
    with catch_warnings():
        for message in _NOISE:
            filterwarnings("ignore", message=message)
        yield


def find_device(wanted: str) -> CaptureDevice:
    """The device for `auto`, `cuda`, `cuda:1` or `cpu`; `auto` prefers a GPU. Raises
    CaptureError for another word, or for a GPU that torch does not see."""
    check_device(wanted)
    torch = load_torch()
    if wanted != "cpu" and torch.cuda.is_available():
        return _gpu(torch, int(wanted.partition(":")[2]) if ":" in wanted else None)
    if wanted.startswith("cuda"):
        raise CaptureError(
            "torch sees no GPU here: use --device cpu, or install a CUDA build."
        )
    threads = torch.get_num_threads()
    name = platform.processor() or platform.machine()
    if sys.platform == "linux":  # which gives it only in a file
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        models = (
            line.partition(":")[2].strip()
            for line in lines
            if line.startswith("model name")
        )
        name = next(models, name)
    return CaptureDevice("cpu", f"{name}, {threads} thread{'s' if threads > 1 else ''}")


def _gpu(torch: Any, asked: int | None) -> CaptureDevice:
    """The GPU of that number, or torch's current one. Raises CaptureError if there is
    none."""
    if asked is not None and asked >= torch.cuda.device_count():
        names = ", ".join(
            f"cuda:{number}" for number in range(torch.cuda.device_count())
        )
        raise CaptureError(f"torch does not see cuda:{asked} here, only {names}.")
    number = torch.cuda.current_device() if asked is None else asked
    properties = torch.cuda.get_device_properties(number)
    return CaptureDevice(
        kind="cuda",
        name=torch.cuda.get_device_name(number),
        cache_bytes=int(getattr(properties, "L2_cache_size", LARGE_CACHE_BYTES)),
        capability=None
        if torch.version.hip
        else torch.cuda.get_device_capability(number),
        index=asked,
    )


@contextmanager
def selected(device: CaptureDevice) -> Iterator[None]:
    """Within the block, the GPU that was asked for is torch's current one: `cuda` means
    it."""
    if device.index is None:
        yield
        return
    with load_torch().cuda.device(device.index):
        yield


def versions() -> dict[str, str | None]:
    """Versions of the software that a measurement depends on; null if not installed."""
    torch, triton = load_torch(), None
    with suppress(metadata.PackageNotFoundError):
        triton = metadata.version("triton")
    return {
        "fusetui": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
    }


_FIELDS = ("driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.limit")
_SECONDS = 5


def new_record(
    device: CaptureDevice,
    options: Options,
    where: Path,
    public_text: Callable[[str], str],
    **measured: Any,
) -> RunRecord:
    """The record of a run that has just ended; `where` is a folder of the user's
    code."""
    return RunRecord(
        format=FORMAT,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        device=device.name,
        device_kind=device.kind,
        versions=versions(),
        options=public(options, public_text),
        provenance=provenance(device.kind, where, options.scrub),
        **measured,
    )


def provenance(device_kind: str, where: Path, scrubbed: bool) -> dict[str, Any]:
    """Provenance for run.json; null for what cannot be read. `where` is a folder of the
    user's code. With `scrubbed` the command line contains nothing private; that of the
    user's own program is left out."""
    return {
        "command": public_command(sys.argv) if scrubbed else command_line(sys.argv),
        "git": git_state(where),
        "gpu": gpu_state() if device_kind == "cuda" else None,
    }


def command_line(argv: Sequence[str]) -> str:
    """The command as it can be typed again; the program without its folder."""
    return shlex.join([Path(argv[0]).name, *argv[1:]])


def public_command(argv: Sequence[str]) -> str | None:
    """The fusetui command without folders and names; None for any other program."""
    program = Path(argv[0])
    if program.stem != "fusetui" and program.parts[-2:] != ("fusetui", "__main__.py"):
        return None
    public = texts()
    words = ["fusetui"]
    for before, word in pairwise(argv):
        option, equals, value = word.partition("=")
        if before == "--out":
            word = public.path(word)
        elif option == "--out" and equals:
            word = f"--out={public.path(value)}"
        words.append(public.scrub(word))
    return shlex.join(words)


def git_state(folder: Path) -> dict[str, Any] | None:
    """The commit of the repository around a folder, and whether files differ from it;
    or None."""
    commit = _output(["git", "-C", str(folder), "rev-parse", "HEAD"])
    if commit is None:
        return None
    changed = _output(
        ["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no"]
    )
    return {"commit": commit, "changed": bool(changed)}


def gpu_state() -> dict[str, Any]:
    """Name, multiprocessors, memory, L2 cache, and clocks and driver according to
    nvidia-smi."""
    cuda = load_torch().cuda
    properties = cuda.get_device_properties(cuda.current_device())
    state = {
        "name": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_cache_bytes": getattr(properties, "L2_cache_size", None),
        "capability": f"{properties.major}.{properties.minor}",
    }
    # Selected by UUID, because nvidia-smi ignores CUDA_VISIBLE_DEVICES in its numbers.
    uuid = getattr(properties, "uuid", None)
    query = ["nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader"]
    lines = _output([*query, f"--id=GPU-{uuid}"] if uuid else query)
    return state | parse_smi(lines.splitlines()[0] if lines else "")


def parse_smi(line: str) -> dict[str, str | None]:
    """One line of nvidia-smi's CSV as a dict; null for what the GPU does not report."""
    values = [value.strip() for value in line.split(",")]
    if len(values) != len(_FIELDS):
        return dict.fromkeys(_FIELDS)
    known = [None if value.startswith("[") else value for value in values]
    return dict(zip(_FIELDS, known, strict=True))


def _output(command: Sequence[str]) -> str | None:
    """The output of a program, or None if it is missing, fails or takes too long."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
            errors="replace",
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


_TRACE_NAME = re.compile(r'("traceName"\s*:\s*)"(?:[^"\\]|\\.)*"')


def scrubbed(trace: Path, trace_name: str) -> str:
    """The JSON text of a trace without private data; `trace_name` replaces the path in
    it. Raises CaptureError if part of the trace could not be read, and TraceError."""
    document = ScrubbedDocument(open_source(str(trace)), this_machine(), trace_name)
    document.learn()
    text = b"".join(document.text()).decode()
    if document.lost or document.keys_lost or document.ends_early:
        raise CaptureError(
            "The profiler wrote a damaged trace, which cannot be scrubbed."
        )
    return text


def set_trace_name(text: str, trace_name: str) -> str:
    """The trace's JSON with another `traceName`, where the profiler wrote its output's
    path."""
    return _TRACE_NAME.sub(lambda match: f'{match[1]}"{trace_name}"', text)


def texts() -> Texts:
    """A scrubber for the texts of one record: names of this machine are private in
    them."""
    found = Texts()
    found.expect(this_machine())
    return found
