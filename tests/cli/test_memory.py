"""`fusetui memory` from the command line: one snapshot, two, a folder, and what it
refuses."""

from __future__ import annotations

import csv
import io
import json
import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.snapshots import (
    MB,
    TRACED,
    Machine,
    failed,
    traced,
    train,
    trained,
    training,
)

Run = Callable[..., Any]


@pytest.fixture
def leaking(tmp_path: Path) -> Path:
    machine = Machine()
    train(machine, 6, leaking=3 * MB)
    return machine.write(tmp_path / "leaking.pickle")


def test_memory_text_names_peak_and_leak(fusetui: Run, leaking: Path) -> None:
    lines = fusetui("memory", leaking).out.splitlines()
    assert lines[0] == str(leaking)
    assert lines[1].startswith("Peak: ")
    claim = "1. Memory kept by one stack in a/train.py:33 train grew in 4 of the last 4"
    assert [line for line in lines if line.startswith("1.")] == [claim]


@pytest.mark.parametrize("by", ["code", "module", "category"])
@pytest.mark.parametrize("at", ["peak", "end", "400us"])
def test_bytes_and_shares_of_each_memory_table_add_up(
    fusetui: Run, leaking: Path, by: str, at: str
) -> None:
    found = fusetui("memory", leaking, "--by", by, "--at", at, "--format", "json").json
    whole = fusetui("memory", leaking, "--at", at, "--json").json["devices"][0]
    assert sum(row["bytes"] for row in found) == whole["at_allocated_bytes"]
    assert sum(row["share"] for row in found) == pytest.approx(1)


def test_memory_at_a_time_reports_that_moment(fusetui: Run, leaking: Path) -> None:
    by_time = fusetui("memory", leaking, "--at", "400us", "--json").json["devices"][0]
    assert by_time["at_time_us"] - by_time["start_time_us"] == 400
    again = fusetui("memory", leaking, "--at", by_time["at_time_us"], "--json").json[
        "devices"
    ][0]
    assert again == by_time


def test_memory_at_oom_reports_the_failed_allocation(
    fusetui: Run, tmp_path: Path
) -> None:
    path = failed(tmp_path)
    found = fusetui("memory", path, "--at", "oom", "--json").json["devices"][0]
    assert found["ooms"][0]["index"] == found["at_index"] == found["events"] - 1
    assert "Fragmentation is not the cause" in " ".join(
        fusetui("memory", path).out.split()
    )


def test_memory_at_oom_lists_free_pieces(fusetui: Run, tmp_path: Path) -> None:
    """What is said is what was computed; each segment has its address, and those left
    out a number."""
    machine = Machine(total=200 * MB)
    kept = [machine.alloc(size * MB) for _ in range(10) for size in (9, 11)]
    for address in kept[::2]:
        machine.free(address)
    assert machine.alloc(60 * MB) is None
    out = fusetui("memory", machine.write(tmp_path / "a.pickle")).out
    text = " ".join(out.split())
    assert "94.37 MB in its pool and on its stream are inactive" in text
    assert "could have released 83.89 MB in 2 MB pages, which would have been" in text
    assert f"at {machine.segments[0]['address']:#x}, kept by" in text
    assert "  and 7 more" in out.splitlines()


def sentences(fusetui: Run, path: Path) -> str:
    return " ".join(fusetui("memory", path).out.split())


def in_mb(size: int) -> str:
    return f"{float(f'{size / 1e6:.4g}'):g} MB"


def test_memory_text_explains_a_leak(fusetui: Run, leaking: Path) -> None:
    """By a replay of the one stack: what it keeps after each of the last five steps."""
    document = pickle.loads(leaking.read_bytes())
    ends = [
        one["time_us"]
        for one in document["external_annotations"]
        if one["stage"] == "END"
    ]
    events = [
        one
        for one in document["device_traces"][0]
        if one["action"] == "alloc"
        and any(frame["line"] == 33 for frame in one["frames"])
    ]
    kept = [
        sum(one["size"] for one in events if one["time_us"] <= end) for end in ends[-5:]
    ]
    grew = sum(a < b for a, b in pairwise(kept))
    assert (
        f"Memory kept by one stack in a/train.py:33 train grew in {grew} of the last "
        f"{len(kept) - 1} steps, by {in_mb((kept[-1] - kept[0]) // (len(kept) - 1))} on average. "
        f"After the last step it kept {in_mb(kept[-1])} allocated since the recording began."
    ) in sentences(fusetui, leaking)


@pytest.mark.parametrize(("asked", "enough"), [(60, ""), (88, "not ")])
def test_memory_text_advises_expandable_segments(
    fusetui: Run, tmp_path: Path, asked: int, enough: str
) -> None:
    """By the blocks: whole pages of 2 MB that no block that lives touches."""
    machine = Machine(total=202 * MB)
    kept = [machine.alloc(size * MB) for _ in range(10) for size in (9, 11)]
    for address in kept[::2]:
        machine.free(address)
    assert machine.alloc(asked * MB) is None
    path = machine.write(tmp_path / "a.pickle")
    (pages, used) = set[tuple[int, int]](), set[tuple[int, int]]()
    for segment in pickle.loads(path.read_bytes())["segments"]:
        base = segment["address"]
        pages |= {(base, page) for page in range(segment["total_size"] // (2 * MB))}
        for block in segment["blocks"]:
            first, last = (
                block["address"] - base,
                block["address"] - base + block["size"] - 1,
            )
            if block["state"] != "inactive":
                used |= {
                    (base, page)
                    for page in range(first // (2 * MB), last // (2 * MB) + 1)
                }
    back = len(pages - used) * 2 * MB
    assert (back + 2 * MB >= asked * MB) == (not enough)
    assert (
        f"Expandable segments could have released {in_mb(back)} in 2 MB pages, which "
        f"would {enough}have been enough with the free memory. The memory layout "
        "would have differed from the start."
    ) in sentences(fusetui, path)


def test_memory_text_does_not_advise_expandable_segments_that_are_on(
    fusetui: Run, tmp_path: Path
) -> None:
    machine = Machine(total=100 * MB, expandable=True)
    kept = [machine.alloc(10 * MB, training()) for _ in range(10)]
    for address in kept[::2]:
        machine.free(address)
    assert machine.alloc(40 * MB) is None
    said = sentences(fusetui, machine.write(tmp_path / "a.pickle"))
    assert "Segments are already expandable." in said
    assert "in pages of 2 MB" not in said


def test_memory_with_unknown_free_bytes_says_so(fusetui: Run, tmp_path: Path) -> None:
    path = failed(tmp_path)
    whole = pickle.loads(path.read_bytes())
    whole["device_traces"][0][-1]["device_free"] = None
    path.write_bytes(pickle.dumps(whole))
    assert "an unknown amount free" in " ".join(fusetui("memory", path).out.split())


def test_memory_of_two_snapshots_reports_the_difference(
    fusetui: Run, tmp_path: Path, leaking: Path
) -> None:
    a = trained(tmp_path, 6)
    for by in ("code", "module", "category"):
        found = fusetui("memory", a, leaking, "--by", by, "--at", "end", "--json").json[
            "devices"
        ][0]
        assert found["difference_bytes"] == 6 * 3 * MB
        for key in ("a_bytes", "b_bytes", "difference_bytes"):
            assert sum(row[key] for row in found["rows"]) == found[key]
    found = fusetui("memory", a, leaking, "--at", "end", "--json").json["devices"][0][
        "rows"
    ][0]
    assert found["holder"] == "/home/a/train.py:33 train"
    assert (
        "+18.87 MB  a/train.py:33 train"
        in fusetui("memory", a, leaking, "--at", "end").out
    )


def test_memory_table_of_two_snapshots_has_a_file_column(
    fusetui: Run, tmp_path: Path, leaking: Path
) -> None:
    a = trained(tmp_path)
    rows = [
        *csv.DictReader(
            io.StringIO(fusetui("memory", a, leaking, "--format", "csv").out)
        )
    ]
    assert {row["file"] for row in rows} == {str(a), str(leaking)}


def test_memory_of_a_folder_lists_the_odd_rank_first(
    fusetui: Run, tmp_path: Path
) -> None:
    """The odd rank stands first; what is no snapshot is said at the end."""
    for rank in range(4):
        machine = Machine()
        train(machine, 2)
        if rank == 2:
            machine.alloc(90 * MB, training())
        machine.write(tmp_path / f"rank{rank}.pickle")
    (tmp_path / "rank9.pickle").write_bytes(b"no pickle")
    (tmp_path / "notes.txt").write_bytes(b"")
    found = fusetui("memory", tmp_path, "--json")
    assert found.code == 2
    first, *others = found.json["ranks"]
    assert (first["file"], first["from_median_bytes"] > 0) == (
        str(tmp_path / "rank2.pickle"),
        True,
    )
    assert {one["from_median_bytes"] for one in others} == {0}
    assert [one["file"] for one in found.json["left_out"]] == [
        str(tmp_path / "rank9.pickle")
    ]
    text = fusetui("memory", tmp_path)
    assert text.out.splitlines()[1].endswith("rank2.pickle")
    assert "rank9.pickle" in text.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--at", "oom"), "it has no out-of-memory event."),
        (("--at", "noon"), "--at takes peak, end, oom or a time"),
        (("gone.pickle",), "no such file"),
    ],
    ids=str,
)
def test_memory_refuses_options_that_a_snapshot_cannot_answer(
    fusetui: Run, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    found = fusetui("memory", trained(tmp_path), *words)
    assert (found.code, found.out) == (2, "")
    assert says in found.sentence


def test_folders_that_it_refuses(fusetui: Run, tmp_path: Path, leaking: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert (
        "a folder without snapshots" in fusetui("memory", tmp_path / "empty").sentence
    )
    assert (
        "pass two snapshots"
        in fusetui("memory", tmp_path, leaking, "--format", "csv").sentence
    )
    assert "pass two snapshots" in fusetui("memory", tmp_path, leaking).sentence


def test_memory_of_a_trace_reports_its_peak(fusetui: Run, tmp_path: Path) -> None:
    path = traced(tmp_path)
    out = fusetui("memory", path).out
    said = "1.536 kB allocated at 3 us (event 0); peak reserved memory: 4.096 kB."
    assert out.splitlines()[3].startswith(f"Peak: {said}")
    assert "A memory snapshot also has stacks," in " ".join(out.split())
    found = fusetui("memory", path, "--json", "--at", "2us").json["devices"][0]
    assert (found["at_index"], found["by_op"][0]["bytes"]) == (-1, 1024)
    rows = fusetui("memory", path, "--format", "json").json
    assert [(row["device"], row["holder"], row["blocks"]) for row in rows] == [
        ("GPU 0", "before_recording", 0),
        ("GPU 0", "aten::mm", 1),
    ]


def test_a_cpu_has_no_snapshot_to_recommend(
    fusetui: Run, write: Callable[..., Path]
) -> None:
    args = TRACED[1]["args"] | {"Device Type": 0, "Device Id": -1, "Total Reserved": 0}
    out = fusetui(
        "memory", write(json.dumps([TRACED[0], TRACED[1] | {"args": args}]))
    ).out
    assert "CPU: allocations during the recording" in out
    assert "A snapshot would" not in out
    assert " reserved" not in out


def test_a_lesson_says_that_it_is_one(fusetui: Run) -> None:
    """In each form."""
    for form in ((), ("--json",), ("--format", "csv")):
        found = fusetui("memory", "lesson:mlp-eager", *form)
        assert "Reconstructed, not recorded" in found.out + found.err


def test_memory_refuses_options_that_a_trace_cannot_answer(
    fusetui: Run, write: Callable[..., Path]
) -> None:
    path, old = (
        write(json.dumps(TRACED)),
        [TRACED[0], TRACED[1] | {"args": {"Bytes": 5}}],
    )
    assert "only snapshots can be compared" in fusetui("memory", path, path).sentence
    assert "groups memory by op" in fusetui("memory", path, "--by", "module").sentence
    assert (
        "do not show where memory ran out"
        in fusetui("memory", path, "--at", "oom").sentence
    )
    assert (
        "profile_memory=True records them"
        in fusetui("memory", write(json.dumps(TRACED[:1]))).err
    )
    found = fusetui("memory", write(json.dumps(old)))
    assert (found.code, "newer torch versions" in found.sentence) == (2, True)


def test_names_are_printable(fusetui: Run, tmp_path: Path) -> None:
    machine = Machine()
    machine.alloc(500, (("\x1b[31mred", "/home/\x1b/a.py", 3),))
    out = fusetui("memory", machine.write(tmp_path / "a.pickle")).out
    assert "\x1b" not in out
    assert json.loads(fusetui("memory", tmp_path / "a.pickle", "--json").out)


def test_a_snapshot_with_a_secret_is_warned_of(fusetui: Run, tmp_path: Path) -> None:
    machine = Machine(total=1 << 30)
    with machine.annotated("load hf_" + "aB3dE5gH7jK9" * 3):
        train(machine, 2)
    outcome = fusetui("memory", str(machine.write(tmp_path / "a.pickle")))
    assert outcome.code == 0
    assert "may contain a secret (a Hugging Face token)" in outcome.err
    assert "hf_" not in outcome.err


@pytest.mark.parametrize("place", [0, 1])
def test_a_snapshot_with_a_secret_in_a_frame_is_warned_of(
    fusetui: Run, tmp_path: Path, place: int
) -> None:
    texts = ["train", "/data/train.py"]
    texts[place] += " hf_" + "aB3dE5gH7jK9" * 3
    machine = Machine()
    machine.alloc(500, ((texts[0], texts[1], 3),))
    outcome = fusetui("memory", machine.write(tmp_path / "a.pickle"))
    assert outcome.code == 0
    assert "may contain a secret (a Hugging Face token)" in outcome.err
