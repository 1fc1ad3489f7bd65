"""Where and how a run was made: the GPU, its clocks and driver, the user's commit, the command; and
what is private in the record and the trace of it, removed by means of `fusetui.trace.scrub`."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from fusetui.trace.read.source import open_source
from fusetui.trace.scrub.document import ScrubbedDocument, this_machine
from fusetui.trace.scrub.texts import Texts

from .device import CaptureDevice, load_torch, versions
from .errors import CaptureError
from .options import Options, public
from .record import FORMAT, RunRecord

_FIELDS = ("driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.limit")
_SECONDS = 5


def new_record(
    device: CaptureDevice,
    options: Options,
    where: Path,
    public_text: Callable[[str], str],
    **measured: Any,
) -> RunRecord:
    """The record of a run that has just ended; `where` is a folder of the user's code."""
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
    """Provenance for run.json; null for what cannot be read.

    `where` is a folder of the user's code. With `scrubbed` the command line contains nothing
    private; that of the user's own program is left out.
    """
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
    """The commit of the repository around a folder, and whether files differ from it; or None."""
    commit = _output(["git", "-C", str(folder), "rev-parse", "HEAD"])
    if commit is None:
        return None
    changed = _output(["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no"])
    return {"commit": commit, "changed": bool(changed)}


def gpu_state() -> dict[str, Any]:
    """Name, multiprocessors, memory, L2 cache, and the clocks and driver according to
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
            command, capture_output=True, text=True, timeout=_SECONDS, check=True, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


_TRACE_NAME = re.compile(r'("traceName"\s*:\s*)"(?:[^"\\]|\\.)*"')


def scrubbed(trace: Path, trace_name: str) -> str:
    """The JSON text of a trace without private data; `trace_name` replaces the path in it. Raises
    CaptureError if part of the trace could not be read, and TraceError."""
    document = ScrubbedDocument(open_source(str(trace)), this_machine(), trace_name)
    document.learn()
    text = b"".join(document.text()).decode()
    if document.lost or document.keys_lost or document.ends_early:
        raise CaptureError("The profiler wrote a damaged trace, which cannot be scrubbed.")
    return text


def set_trace_name(text: str, trace_name: str) -> str:
    """The trace's JSON with another `traceName`, where the profiler wrote the path of its
    output."""
    return _TRACE_NAME.sub(lambda match: f'{match[1]}"{trace_name}"', text)


def texts() -> Texts:
    """A scrubber for the texts of one record: names of this machine are private in them."""
    found = Texts()
    found.expect(this_machine())
    return found
