"""The kind of inputs that are damaged traces from which a command writes another file,
with links planted where it writes."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple
from unittest.mock import patch
from xml.etree import ElementTree

from fuzz.campaign import Kind
from fuzz.case import case
from fuzz.checks import check
from fuzz.commands import answer
from fuzz.limits import check_memory, limited
from fuzz.packing import unpacked

from fusetui.commands.errors import DONE
from fusetui.trace import TraceError, open_trace

KEPT = "keep me"
GUESSED = "guessed"
"""The random part of a temporary name, where the one who plants links guesses it."""
GUESSES = ("{}.part", "{}.tmp", "{}.{pid}.part", "{}." + GUESSED + ".part")


class Writer(NamedTuple):
    """A command that writes a file."""

    words: tuple[str, ...]  # of the command, with {trace} and {out}
    endings: tuple[str, ...]
    check_form: Callable[[bytes, str], None]
    replaces: bool = False  # what is at the place of its file


def _check_json(text: bytes, name: str) -> None:
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        check(isinstance(error, RecursionError), f"{name} wrote no JSON", error)


def _check_xml(text: bytes, name: str) -> None:
    try:
        ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        check(False, f"{name} wrote no XML", error)


def _check_csv(text: bytes, name: str) -> None:
    rows = list(csv.reader(io.StringIO(text.decode(), newline="")))
    widths = {len(row) for row in rows}
    check(len(widths) == 1, f"{name} wrote no table", rows)


def _check_parquet(text: bytes, name: str) -> None:
    whole = text[:4] == text[-4:] == b"PAR1"
    check(whole, f"{name} wrote no Parquet", text[-4:])


def _check_page(text: bytes, name: str) -> None:
    whole = text.rstrip().endswith(b"</html>")
    check(whole, f"{name} wrote half a page", text[-40:])


def _check_lines(text: bytes, name: str) -> None:
    check(text.decode().endswith("\n"), f"{name} wrote half a line", text[-40:])


TRACES = (".json", ".json.gz", ".json.zst")
OUTPUT = ("{trace}", "--output", "{out}")
WRITERS: dict[str, Writer] = {
    "convert": Writer(("convert", "{trace}", "{out}"), TRACES, _check_json),
    "cut": Writer(("cut", "{trace}", "--from=0ns", "{out}"), TRACES, _check_json),
    "scrub": Writer(("scrub", "{trace}", "{out}"), TRACES, _check_json),
    "perfetto": Writer(
        ("perfetto", "{trace}", "--from=0ns", "{out}"), TRACES, _check_json
    ),
    "report": Writer(("report", "{trace}", "{out}"), (".html",), _check_page),
    "picture": Writer(("picture", "{trace}", "{out}"), (".svg",), _check_xml),
    "a page as a picture": Writer(
        ("picture", "{trace}", "{out}"), (".html",), _check_page
    ),
    "stacks": Writer(
        ("stacks", "--time=cpu", "{trace}", "{out}"), (".txt",), _check_lines
    ),
    "speedscope": Writer(
        ("stacks", "--time=cpu", "--speedscope", "{trace}", "{out}"),
        (".json",),
        _check_json,
    ),
    "a table as CSV": Writer(("slices", *OUTPUT), (".csv",), _check_csv, True),
    "a table as JSON": Writer(("ops", *OUTPUT), (".json",), _check_json, True),
    "a table as Parquet": Writer(
        ("slices", *OUTPUT), (".parquet",), _check_parquet, True
    ),
    "a drawn table": Writer(
        ("slices", "--format=table", *OUTPUT), (".txt",), _check_lines, True
    ),
    "JUnit": Writer(
        ("check", "{trace}", "--expect=kernels=5", "--junit", "{out}"),
        (".xml",),
        _check_xml,
        True,
    ),
}
WRITES_TRACES = ("convert", "cut", "scrub", "perfetto")
ASKED = (*WRITERS, *WRITES_TRACES, "scrub")


def attempt(seed: int, number: int) -> str:
    """What became of it: the command that wrote a file, or `refused`."""
    rnd = Random(f"writing {seed}/{number}")
    return examine_writer(rnd.choice(ASKED), case(seed, number).data, rnd)


def examine_writer(name: str, data: bytes, rnd: Random) -> str:
    writer = WRITERS[name]
    with tempfile.TemporaryDirectory() as folder:
        path, out = (
            Path(folder) / "trace.json",
            Path(folder) / f"o{rnd.choice(writer.endings)}",
        )
        path.write_bytes(data)
        is_guessed, is_taken = rnd.random() < 0.2, rnd.random() < 0.2
        precious = _planted(out, is_taken=is_taken)
        words = [part.format(trace=path, out=out) for part in writer.words]
        with limited(name):
            if is_guessed:
                with patch("fusetui.trace.new_file._random_part", lambda: GUESSED):
                    found = answer(words)
            else:
                found = answer(words)
        check(precious.read_text() == KEPT, "written through a link", name)
        check_memory()
        if out.is_symlink() or not os.path.lexists(out):
            check(found.code != DONE, "no file was written", found)
            return "refused"
        refuses = is_guessed or (is_taken and not writer.replaces)
        check(not refuses, "written where something was planted", found)
        check_written(out, name)
        return f"{name} wrote"


def _planted(out: Path, *, is_taken: bool) -> Path:
    """The file that links at guessable temporary names lead to, and one at the place of
    the new file if that is taken."""
    precious = out.with_name("precious")
    precious.write_text(KEPT)
    for guess in GUESSES:
        os.symlink(precious, guess.format(out, pid=os.getpid()))
    if is_taken:
        os.symlink(precious, out)
    return precious


def check_written(out: Path, name: str) -> None:
    """It has its form, and a trace opens without damage."""
    text = unpacked(out.read_bytes())
    check(text is not None, "damaged packing", name)
    WRITERS[name].check_form(text or b"", name)
    if name not in WRITES_TRACES:
        return
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
