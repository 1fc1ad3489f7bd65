"""The kind of inputs that are damaged traces from which a command writes another file:
`convert`, `cut` and `scrub`, with links planted where they write."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from random import Random

from tests.fuzz.campaign import Kind
from tests.fuzz.case import case
from tests.fuzz.checks import check
from tests.fuzz.commands import answer
from tests.fuzz.limits import check_memory, limited
from tests.fuzz.packing import unpacked

from fusetui.commands.errors import DONE
from fusetui.trace import TraceError, open_trace

WRITERS: dict[str, tuple[str, ...]] = {
    "convert": ("convert", "{trace}", "{out}"),
    "cut": ("cut", "{trace}", "--from=0ns", "{out}"),
    "scrub": ("scrub", "{trace}", "{out}"),
}
ASKED = ("convert", "cut", "scrub", "scrub")
KEPT = "keep me"


def attempt(seed: int, number: int) -> str:
    """What became of it: the command that wrote a file, or `refused`."""
    rnd = Random(f"writing {seed}/{number}")
    return examine_writer(rnd.choice(ASKED), case(seed, number).data, rnd)


def examine_writer(name: str, data: bytes, rnd: Random) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path, out = (
            Path(folder) / "trace.json",
            Path(folder) / rnd.choice(("o.json", "o.json.gz")),
        )
        path.write_bytes(data)
        precious = _planted(out)
        with limited(name):
            found = answer([part.format(trace=path, out=out) for part in WRITERS[name]])
        check(precious.read_text() == KEPT, "written through a link", name)
        check_memory()
        if not os.path.lexists(out):
            check(found.code != DONE, "no file was written", found)
            return "refused"
        check_written(out, name)
        return f"{name} wrote"


def _planted(out: Path) -> Path:
    """The file that links at guessable temporary names lead to."""
    precious = out.with_name("precious")
    precious.write_text(KEPT)
    for guess in (f"{out}.part", f"{out}.tmp", f"{out}.{os.getpid()}.part"):
        os.symlink(precious, guess)
    return precious


def check_written(out: Path, name: str) -> None:
    """It is JSON, and a trace that opens without damage."""
    text = unpacked(out.read_bytes())
    check(text is not None, "damaged packing", name)
    try:
        json.loads(text or b"")
    except (ValueError, RecursionError) as error:
        check(isinstance(error, RecursionError), f"{name} wrote no JSON", error)
    try:
        again = open_trace(str(out), cached=False)
    except TraceError as error:
        check(str(error).endswith("."), "no sentence", error)
        return
    check(again.report.complete, f"{name} wrote a trace that is cut", again.report)


def save(seed: int, number: int, _what: str, place: Path) -> Path:
    path = place.with_name(f"{place.name}.json")
    path.write_bytes(case(seed, number).data)
    return path


KIND = Kind("writing", attempt, save)
