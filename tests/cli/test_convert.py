"""`fusetui convert`, and what is said of a .pftrace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import pftraces

Run = Callable[..., Any]
EVENTS = (
    *pftraces.group([(0, 50, pftraces.THREAD, pftraces.OP)]),
    pftraces.stage(0, 10),
    pftraces.stage(10, 10),
)


@pytest.fixture
def pftrace(tmp_path: Path) -> Path:
    path = tmp_path / "a.pftrace"
    path.write_bytes(b"".join((*pftraces.head(), *EVENTS)))
    return path


def test_the_result_answers_as_the_file_does(fusetui: Run, pftrace: Path) -> None:
    out = pftrace.with_name("out.json.gz")
    found = fusetui("convert", pftrace, out)
    assert (found.code, found.out) == (0, f"{out}: 8 events.\n")
    one, other = (fusetui("summary", path, "--json").json for path in (pftrace, out))
    for key in ("slices", "kernels", "gpu_busy_ns", "tracks", "base_ns"):
        assert one[key] == other[key]


def test_a_file_that_was_cut(fusetui: Run, pftrace: Path) -> None:
    pftrace.write_bytes(pftrace.read_bytes()[:-5])
    out = pftrace.with_name("out.json")
    found = fusetui("convert", pftrace, out)
    assert (found.code, found.sentence) == (
        0,
        f"{pftrace} ends early: the readable part was written.",
    )
    assert len(json.loads(out.read_text())["traceEvents"]) == 7


def test_slices_whose_ends_were_cut_off_are_told(fusetui: Run, pftrace: Path) -> None:
    pftrace.write_bytes(b"".join((*pftraces.head(), EVENTS[0])))
    found = fusetui("summary", pftrace)
    assert found.err == f"{pftrace}: 1 slice without its end: not shown.\n"
    out = pftrace.with_name("out.json")
    assert "1 slice without its end" in fusetui("convert", pftrace, out).err
    assert json.loads(out.read_text())["traceEvents"][-1]["ph"] == "i"


def test_packets_that_cannot_be_read_are_told(fusetui: Run, pftrace: Path) -> None:
    pftrace.write_bytes(pftrace.read_bytes() + pftraces.packet((77, b"x")))
    found = fusetui("convert", pftrace, pftrace.with_name("out.json"))
    assert (
        "1 event could not be read and is left out; the first is at byte" in found.err
    )
    assert "(a packet of another kind)" in found.err


def test_ends_that_torch_cut_are_told_by_all_commands(
    fusetui: Run, pftrace: Path
) -> None:
    found = fusetui("why", pftrace)
    assert "1 GPU event may have lasted longer than shown" in found.err
    words = " ".join(found.out.split())
    assert "the ends of 1 GPU event" in words
    assert "(use an export named .json, not .pftrace)" in words


def test_scrub_takes_json_only(fusetui: Run, pftrace: Path) -> None:
    found = fusetui("scrub", pftrace, pftrace.with_name("out.json"))
    assert (found.code, found.sentence) == (
        2,
        (
            f"{pftrace} is not JSON: convert it with fusetui convert, then scrub the "
            "result."
        ),
    )


def test_folder_of_pftraces_is_answered(fusetui: Run, pftrace: Path) -> None:
    found = fusetui("summary", pftrace.parent, "--json")
    assert (found.code, found.json["slices"]) == (0, 3)
