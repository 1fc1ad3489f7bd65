"""`ranks`, as it is used."""

from __future__ import annotations

import csv
import json
import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.ranks.invented_job import Work, simulated, write
from tests.cli.conftest import Result
from tests.docs.test_json import documented, keys
from tests.laptops import needs_fork

from fusetui.sample_traces import lessons
from fusetui.text.figures import duration

Run = Callable[..., Result]
SLEEP = 400  # us by which rank 2 is late in every step


def job(folder: Path, ranks: int = 4) -> Path:
    """Three steps with an all_reduce each; rank 2 is late, by what it does in
    `load`."""
    for rank in range(ranks):
        info = {"rank": rank, "world_size": ranks, "backend": "gloo"}
        events = [one for step in range(3) for one in step_of(rank, step)]
        text = json.dumps(
            {"distributedInfo": info, "host_name": "h", "traceEvents": events}
        )
        (folder / f"rank{rank}.json").write_text(text)
    return folder


def step_of(rank: int, step: int) -> Iterator[dict[str, Any]]:
    begin, load = 1000 * step, 100 + SLEEP * (rank == 2)

    def mark(name: str, ts: float, dur: float, **more: Any) -> dict[str, Any]:
        plain = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1, "name": name}
        return {**plain, "ts": begin + ts, "dur": dur, **more}

    yield mark(f"ProfilerStep#{step}", 0, 1000)
    yield mark("load", 0, load)
    yield mark("c10d::allreduce_", load, 5, cat="cpu_op")
    yield mark("gloo:all_reduce", load + 10, 900 - load - 10, tid=9)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return job(tmp_path)


def test_ranks_text_names_the_straggler_and_its_cost(
    fusetui: Run, folder: Path
) -> None:
    out = fusetui("ranks", folder).out
    assert "The traces contain 4 of 4 ranks, 3 steps and 3 collectives." in out
    assert (
        "Rank 2 arrives last in 3 of 3 collectives; the others wait 400 us per step for it."
        in " ".join(out.split())
    )
    assert "It spends 400 us per step more than the median rank in load." in " ".join(
        out.split()
    )
    assert "A step (wall) would take 600 us instead of 1 ms (40 % less)" in " ".join(
        out.split()
    )
    assert len(out.splitlines()) <= 40


def test_ranks_json_lists_ranks_by_what_they_caused(fusetui: Run, folder: Path) -> None:
    found = fusetui("ranks", folder, "--json").json
    assert [row["rank"] for row in found["ranks"]] == [2, 0, 1, 3]
    assert found["ranks"][0]["caused_ns"] == 3 * SLEEP * 1000
    assert found["stragglers"][0]["cause"] == "inside"
    assert set(keys(found)) - documented("ranks") == set()


def test_the_table_has_the_figures_of_json(fusetui: Run, folder: Path) -> None:
    names = (
        "rank",
        "path",
        "steps",
        "step_ns",
        "last_count",
        "caused_ns",
        "waited_ns",
        "idle_ns",
    )
    rows = fusetui(
        "ranks", folder, "--format", "json", "--columns", ",".join(names)
    ).json
    ranks = fusetui("ranks", folder, "--json").json["ranks"]
    assert rows == [{name: rank[name] for name in names} for rank in ranks]


def test_idle_time_of_a_reason_is_0_or_not_known(fusetui: Run, folder: Path) -> None:
    """Not known is that of a rank without a GPU."""
    alone = fusetui("ranks", lessons.path("mlp-eager"), "--format", "json")
    rows = [*fusetui("ranks", folder, "--format", "json").json, *json.loads(alone.out)]
    for row in rows:
        reasons = [
            row[name] for name in row if name.startswith("idle_") and name != "idle_ns"
        ]
        assert {ns is None for ns in reasons} == {row["idle_ns"] is None}
    assert [row["idle_ns"] is None for row in rows] == [True] * 4 + [False]


def test_ranks_table_of_the_docs_prints_its_rows(fusetui: Run, folder: Path) -> None:
    """The command in docs/ranks.md."""
    page = (Path(__file__).parents[2] / "docs/ranks.md").read_text()
    line = next(line for line in page.splitlines() if "--where" in line)
    arguments = shlex.split(line, comments=True)[2:]
    found = fusetui("ranks", folder, *arguments)
    assert found.out == "rank,caused_ns\n2,1200000\n"


def test_the_table_tells_on_stderr_which_files_are_left_out(
    fusetui: Run, folder: Path
) -> None:
    (folder / "rank9.json").write_text("no JSON")
    found = fusetui(
        "ranks", folder, "--sort", "waited_ns", "--top", 1, "--columns", "rank"
    )
    assert (found.code, found.out.split()[:2]) == (2, ["rank", "0"])
    assert "rank9.json" in found.err


def test_without_steps_figures_are_of_the_whole_trace(
    fusetui: Run, folder: Path
) -> None:
    """Nothing is said to be per step then."""
    for path in folder.iterdir():
        text = json.loads(path.read_text())
        events = [one for one in text["traceEvents"] if "Step" not in one["name"]]
        path.write_text(json.dumps(text | {"traceEvents": events}))
    out = " ".join(fusetui("ranks", folder).out.split())
    assert "4 of 4 ranks, 0 steps" in out
    assert "us - Figures cover the whole trace," in out
    assert "and 'waits' are sums." in out
    assert "a step" not in out
    assert "per step" not in out


def test_a_host_is_not_called_a_device(fusetui: Run, folder: Path) -> None:
    """No rank has a GPU."""
    (head,) = [
        line
        for line in fusetui("ranks", folder).out.splitlines()
        if line.startswith("rank ")
    ]
    assert head.split()[-1] == "host"


def test_ranks_csv_has_a_line_per_rank(fusetui: Run, folder: Path) -> None:
    rows = list(csv.DictReader(fusetui("ranks", folder, "--csv").out.splitlines()))
    assert [row["last_count"] for row in rows] == ["3", "0", "0", "0"]


def test_files_patterns_and_folders_are_the_same(fusetui: Run, folder: Path) -> None:
    by_folder = fusetui("ranks", folder, "--json").json
    by_files = fusetui("ranks", *sorted(folder.iterdir()), "--json").json
    by_pattern = fusetui("ranks", folder / "rank*.json", folder, "--json").json
    assert by_folder == by_files == by_pattern


def test_a_rank_that_cannot_be_read(fusetui: Run, folder: Path) -> None:
    (folder / "rank1.json").write_text("")
    result = fusetui("ranks", folder)
    assert result.code == 2
    assert "rank1.json is empty" in " ".join(result.out.split())
    assert "Rank 1 is not given" in result.out
    assert "Rank 2 arrives last" in result.out
    assert result.sentence == "1 of 4 traces could not be used."


@needs_fork
def test_dangling_links_and_pipes_are_named_and_left_out_of_ranks(
    fusetui: Run, folder: Path
) -> None:
    (folder / "rank4.json").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "rank5.json")
    said = fusetui("ranks", folder).err.splitlines()
    assert [line.partition(" is skipped")[0] for line in said] == [
        str(folder / name) for name in ("rank4.json", "rank5.json")
    ]


def test_ranks_of_one_trace_alone_exits_with_3_and_says_why(
    fusetui: Run, folder: Path
) -> None:
    result = fusetui("ranks", folder / "rank0.json")
    assert result.code == 3
    assert "It is unclear which rank waits for which" in result.out
    assert result.sentence.startswith("It is unclear which rank waits for which")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing*.json"], "nothing*.json matches no trace"),
        (["-"], "ranks reads files, folders and URLs, not standard input."),
        (
            ["RANKS", "--on", "somewhere"],
            "somewhere is not a valid executor: use dask://HOST:PORT.",
        ),
        (
            ["RANKS", "--csv", "--top", "1", "--sort", "rank"],
            "Use --format csv for a table",
        ),
        (["RANKS", "--json", "--csv"], "Use either --json or --csv, not both."),
    ],
)
def test_wrong_ranks_arguments_are_one_sentence(
    fusetui: Run, folder: Path, arguments: list[str], sentence: str
) -> None:
    words = [str(folder) if word == "RANKS" else word for word in arguments]
    result = fusetui("ranks", *words)
    assert (result.code, result.sentence.startswith(sentence)) == (2, True)


def test_text_and_json_say_the_same(fusetui: Run, folder: Path) -> None:
    """The order of the ranks, how long others wait for each, who is named, and every
    sentence."""
    found = fusetui("ranks", folder, "--json").json
    out = fusetui("ranks", folder).out
    plain = " ".join(out.split())
    lines = out.splitlines()
    head = next(n for n, line in enumerate(lines) if line.startswith("rank "))
    table = [line.split() for line in lines[head + 1 : head + 1 + found["given"]]]
    assert [int(cells[0]) for cells in table] == [row["rank"] for row in found["ranks"]]
    for cells, row in zip(table, found["ranks"], strict=True):
        assert " ".join(cells[1:4]) == f"{row['last_count']} of {row['collectives']}"
        waits = duration(row["caused_ns"] // row["steps"])
        assert " ".join(cells[4:6]).rstrip("*") == waits
    for sentence in [*(one["text"] for one in found["stragglers"]), *found["verdict"]]:
        assert sentence in plain
    (straggler,) = found["stragglers"]
    assert duration(straggler["caused_ns"] // 3) in straggler["text"]
    assert straggler["caused_ns"] == found["ranks"][0]["caused_ns"]


def test_ranks_what_if_reports_the_gain_for_the_job(
    fusetui: Run, tmp_path: Path
) -> None:
    """Of a step: an op of 5 us, latency 6, a kernel of 200, a transfer of 50, return
    1."""
    meet = Work(2_000, 50_000, group=(0, 1))
    slow, fast = ([[Work(5_000, ns), meet]] * 3 for ns in (200_000, 120_000))
    write(simulated([slow, fast], [0, 0]), tmp_path)
    out = " ".join(
        fusetui("ranks", tmp_path, "--what-if", "0:family:gemm x0.5").out.split()
    )
    assert "a step (launched) of the job would take 182 us instead of 262 us (" in out
    assert (
        "Rank 0 arrives last in 3 of 3 collectives; after the change, rank 1 does, in 3."
    ) in out
    assert "Unchanged: rank 1." in out
    found = fusetui("ranks", tmp_path, "--what-if", "comm x0.5", "--json").json
    assert (found["before_ns"], found["after_ns"]) == (262_000, 237_000)
    assert set(keys(found)) - documented("ranks") == set()


def test_a_job_that_cannot_be_replayed(fusetui: Run, folder: Path) -> None:
    result = fusetui("ranks", folder, "--what-if", "python x0.5")
    assert result.code == 3
    assert "some collectives run on the CPU," in " ".join(result.out.split())


def test_ranks_what_if_refuses_table_options(fusetui: Run, folder: Path) -> None:
    for form in (["--csv"], ["--format", "csv"]):
        assert fusetui("ranks", folder, "--what-if", "comm x0.5", *form).code == 2
