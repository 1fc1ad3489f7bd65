"""The origin of a run: the device with its clocks and driver, the user's commit, the
command.

What is private in the record or the trace of a run is removed here too, by means of
`fusetui.trace.scrub`.
"""

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
from .options import Options, check_device, scrub_options
from .record import FORMAT, RunRecord

_IRRELEVANT_WARNINGS = (
    r".*TensorFloat32 tensor cores.*",
    r".*torch\.jit\.script.*is deprecated.*",
    r".*Profiler clears events at the end of each cycle.*",
    r".*pkg_resources is deprecated.*",
)
"""Patterns of the warnings that do not concern the user of a capture."""

LARGE_CACHE_BYTES = 64 * 2**20
"""More than the L2 cache of most GPUs: assumed where torch does not report it."""


@dataclass(frozen=True)
class CaptureDevice:
    """The device of a run.

    `kind` is torch's name, cpu or cuda; `name` is for users. `cache_bytes` is the size
    of a GPU's L2 cache, 0 for a CPU. `capability` is the compute capability of an
    NVIDIA GPU, None for anything else. `index` is the number of the GPU if the user
    gave one, otherwise None: it is torch's current GPU.
    """

    kind: str
    name: str
    cache_bytes: int = 0
    capability: tuple[int, int] | None = None
    index: int | None = None


def load_torch() -> Any:
    """Import torch and return it. Its log and that of the profiler are off unless the
    user has set their levels. Raises CaptureError if torch cannot be imported."""
    # Both levels are read once, when torch is loaded. The log lines would end up among
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
def silence_known_warnings() -> Iterator[None]:
    """Suppress known irrelevant warnings of torch within the block; all others are
    shown."""
    with catch_warnings():
        for message in _IRRELEVANT_WARNINGS:
            filterwarnings("ignore", message=message)
        yield


def find_device(wanted: str) -> CaptureDevice:
    """Return the device for `auto`, `cuda`, `cuda:1` or `cpu`; `auto` prefers a GPU.
    Raises CaptureError for another word, or for a GPU that torch does not see."""
    check_device(wanted)
    torch = load_torch()
    if wanted == "cpu":
        return _describe_cpu(torch)

    if torch.cuda.is_available():
        _, _, number = wanted.partition(":")
        return _describe_gpu(torch, int(number) if number else None)

    if wanted == "auto":
        return _describe_cpu(torch)

    raise CaptureError("torch finds no GPU: use --device cpu, or install a CUDA build.")


def _describe_cpu(torch: Any) -> CaptureDevice:
    """Return the CPU as a device, named after its model and the threads of torch: `AMD
    EPYC 7763, 4 threads`."""
    model = platform.processor() or platform.machine()
    if sys.platform == "linux":  # Python does not know the model there
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    threads = torch.get_num_threads()
    plural_s = "s" if threads > 1 else ""
    return CaptureDevice(kind="cpu", name=f"{model}, {threads} thread{plural_s}")


def _describe_gpu(torch: Any, index: int | None) -> CaptureDevice:
    """Return the GPU of that number as a device, or torch's current one for None.
    Raises CaptureError if there is no such GPU."""
    count = torch.cuda.device_count()
    if index is not None and index >= count:
        names = ", ".join(f"cuda:{number}" for number in range(count))
        raise CaptureError(f"torch does not find cuda:{index}, only {names}.")

    number = torch.cuda.current_device() if index is None else index
    properties = torch.cuda.get_device_properties(number)

    capability = None
    if not torch.version.hip:
        capability = torch.cuda.get_device_capability(number)

    return CaptureDevice(
        kind="cuda",
        name=torch.cuda.get_device_name(number),
        cache_bytes=int(getattr(properties, "L2_cache_size", LARGE_CACHE_BYTES)),
        capability=capability,
        index=index,
    )


@contextmanager
def select_gpu(device: CaptureDevice) -> Iterator[None]:
    """Within the block, make a GPU that the user gave by its number torch's current
    one, so that `cuda` means it."""
    if device.index is None:
        yield
        return
    with load_torch().cuda.device(device.index):
        yield


def versions() -> dict[str, str | None]:
    """Return the versions of the software that a measurement depends on. None stands
    for what is not installed or not used by this torch."""
    torch = load_torch()

    triton = None
    # torch builds for CPUs come without triton
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


_SMI_FIELDS = (
    "driver_version",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "power.limit",
)
"""What nvidia-smi is asked for, in its words."""
_PROGRAM_SECONDS = 5
"""How long git or nvidia-smi may take."""


def make_record(
    device: CaptureDevice,
    options: Options,
    where: Path,
    public_text: Callable[[str], str],
    **measured: Any,
) -> RunRecord:
    """Return the record of a run that has just ended.

    `where` is the folder of the user's code, and `public_text` is applied to the free
    text among the options. `measured` are the remaining fields of RunRecord.
    """
    return RunRecord(
        format=FORMAT,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        device=device.name,
        device_kind=device.kind,
        versions=versions(),
        options=scrub_options(options, public_text),
        provenance=provenance(device.kind, where, options.scrub),
        **measured,
    )


def provenance(device_kind: str, where: Path, scrubbed: bool) -> dict[str, Any]:
    """Return the provenance of a run: the command, the commit of the folder `where`,
    and the state of the GPU. None stands for what cannot be read.

    With `scrubbed`, the command has nothing private, and the command of the user's own
    program is None.
    """
    return {
        "command": scrub_command(sys.argv) if scrubbed else command_line(sys.argv),
        "git": read_git_state(where),
        "gpu": read_gpu_state() if device_kind == "cuda" else None,
    }


def command_line(argv: Sequence[str]) -> str:
    """Return a command as it can be typed again, with the name of the program without
    its folder."""
    return shlex.join([Path(argv[0]).name, *argv[1:]])


def scrub_command(argv: Sequence[str]) -> str | None:
    """Return the fusetui command without private folders and names. None for any other
    program, whose arguments may mean anything."""
    program = Path(argv[0])
    is_module = program.parts[-2:] == ("fusetui", "__main__.py")  # python -m fusetui
    if program.stem != "fusetui" and not is_module:
        return None

    scrubber = make_scrubber()
    words = ["fusetui"]
    for previous, word in pairwise(argv):
        option, equals, value = word.partition("=")
        if previous == "--out":
            word = scrubber.path(word)
        elif option == "--out" and equals:
            word = f"--out={scrubber.path(value)}"
        words.append(scrubber.scrub(word))

    return shlex.join(words)


def read_git_state(folder: Path) -> dict[str, Any] | None:
    """Return the commit of the repository around a folder, and whether files differ
    from it. None without a repository or without git."""
    commit = _run_program(["git", "-C", str(folder), "rev-parse", "HEAD"])
    if commit is None:
        return None
    changed = _run_program(
        ["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no"]
    )
    return {"commit": commit, "changed": bool(changed)}


def read_gpu_state() -> dict[str, Any]:
    """Return properties of the current GPU, and its driver, clocks and power limit from
    nvidia-smi. None stands for what is not known."""
    cuda = load_torch().cuda
    properties = cuda.get_device_properties(cuda.current_device())
    state = {
        "name": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_cache_bytes": getattr(properties, "L2_cache_size", None),
        "capability": f"{properties.major}.{properties.minor}",
    }
    fields = ",".join(_SMI_FIELDS)

    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    uuid = getattr(properties, "uuid", None)
    if uuid:  # the numbers of nvidia-smi ignore CUDA_VISIBLE_DEVICES
        command.append(f"--id=GPU-{uuid}")

    lines = _run_program(command)
    return state | parse_smi(lines.splitlines()[0] if lines else "")


def parse_smi(line: str) -> dict[str, str | None]:
    """Return the fields of a line of nvidia-smi's CSV by name. A field that the GPU
    does not report, `[N/A]`, is None. All are None if the line has another number of
    fields."""
    values = [value.strip() for value in line.split(",")]
    if len(values) != len(_SMI_FIELDS):
        return dict.fromkeys(_SMI_FIELDS)
    state: dict[str, str | None] = {}
    for field, value in zip(_SMI_FIELDS, values, strict=True):
        state[field] = None if value.startswith("[") else value
    return state


def _run_program(command: Sequence[str]) -> str | None:
    """Return what a program prints on stdout, without white space around it. None if it
    is missing, fails or takes too long."""
    try:
        process = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_PROGRAM_SECONDS,
            check=True,
            errors="replace",
        )
    except (OSError, subprocess.SubprocessError):
        return None

    return process.stdout.strip()


_TRACE_NAME = re.compile(r'("traceName"\s*:\s*)"(?:[^"\\]|\\.)*"')


def scrubbed_trace(trace: Path, trace_name: str) -> str:
    """Return the JSON text of a trace without private data; `trace_name` replaces the
    path that the trace has of itself. Raises CaptureError if part of the trace could
    not be read, and TraceError if the file is no trace."""
    document = ScrubbedDocument(open_source(str(trace)), this_machine(), trace_name)
    # first find the private words, as they may also occur before their first labeled
    # use
    document.learn()

    text = b"".join(document.text()).decode()
    if document.lost or document.keys_lost or document.ends_early:
        raise CaptureError(
            "The profiler wrote a damaged trace, which cannot be scrubbed."
        )

    return text


def set_trace_name(text: str, trace_name: str) -> str:
    """Return the JSON text of a trace with another `traceName`, where the profiler
    writes the path of the trace."""
    return _TRACE_NAME.sub(lambda match: f'{match[1]}"{trace_name}"', text)


def make_scrubber() -> Texts:
    """Return a scrubber for the texts of one record. It removes the names of this
    machine and its user, and the secrets of its environment."""
    scrubber = Texts()
    scrubber.expect(this_machine())
    return scrubber
