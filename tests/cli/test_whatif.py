"""`whatif` and `path`: the text that users read, the keys that programs rely on, the
exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusetui.analysis.replay.path import PathRow
from fusetui.analysis.replay.whatif import StepEffect, Sweep, SweepPoint, WhatIf
from fusetui.analysis.why.model import DeviceResidual
from fusetui.cli import run as run_command
from fusetui.report.whatif import (
    describe_bottleneck,
    format_path_rows,
    format_sweep,
    format_whatif,
)

Run = Callable[..., Any]
KEYS = {
    *("changes", "devices", "steps", "before_ns", "after_ns", "residual_share"),
    *("inferred_waits", "certainty", "limit", "notes"),
}
LESSON = "lesson:mlp-eager"
HOST = PathRow("host", "zoom_shift", 7, 71, 0.71)
KERNEL = PathRow("kernel", "gemm", 3, 29, 0.29)


def answer(**other: Any) -> WhatIf:
    fields: dict[str, Any] = {
        "changes": ("loader",),
        "of": "step",
        "devices": (DeviceResidual(0, 0.01),),
        "steps": (StepEffect("ProfilerStep#1", 100_000, 80_000),),
        "before_ns": 100_000,
        "after_ns": 80_000,
        "saved_ns": 20_000,
        "before_range_ns": (100_000, 100_000),
        "after_range_ns": (80_000, 80_000),
        "between_ns": None,
        "residual_share": 0.01,
        "inferred_waits": 0,
        "certainty": "estimate",
        "limit": (HOST, KERNEL),
        "notes": (),
    }
    return WhatIf(**{**fields, **other})


def said(found: WhatIf) -> str:
    return " ".join(format_whatif(found, 100).split())


def test_a_loader_with_workers_gives_a_bound() -> None:
    notes = ("batches_unknown",)
    text = said(answer(certainty="bound", latest_ns=95_000, notes=notes))
    assert text.startswith(
        "With loader, a step (launched) would take 80 us instead of 100 us (at best: "
        "20.0 % less). If no batch is ready earlier than"
    )
    assert "Workers load the batches" in text
    assert "no batch is ready" not in said(answer())


def test_whatif_json_has_its_documented_keys(fusetui: Run) -> None:
    found = fusetui("whatif", LESSON, "family:gemm x0.5", "--json").json
    assert set(found) >= KEYS
    assert set(found["steps"][0]) == {"name", "before_ns", "after_ns", "in_median"}
    assert found["changes"] == ["family:gemm x0.5"]
    assert found["after_ns"] < found["before_ns"]


def test_times_by_limit_add_up_to_the_steps_after_a_change(fusetui: Run) -> None:
    found = fusetui("whatif", LESSON, "family:gemm x0.5", "--json").json
    later = found["steps"][1:]
    assert sum(row["ns"] for row in found["limit"]) == sum(
        step["after_ns"] for step in later
    )


def test_the_path_adds_up(fusetui: Run) -> None:
    found = fusetui("path", LESSON, "--json").json
    assert sum(row["ns"] for row in found["rows"]) == found["span_ns"]
    assert len(found["rows"]) <= 12


def test_a_factor_of_one_changes_nothing(fusetui: Run) -> None:
    found = fusetui("whatif", LESSON, "family:gemm x1", "python x1", "--json").json
    assert all(step["before_ns"] == step["after_ns"] for step in found["steps"])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("kernel:nowhere x0.5", "No kernel matches kernel:nowhere."),
        ("faster", 'Unknown change "faster". Valid: kernel:PATTERN x0.5, '),
        (
            "loader",
            (
                "No thread that launches work loads data, so there is nothing to speed "
                "up."
            ),
        ),
    ],
)
def test_a_wrong_change(fusetui: Run, change: str, sentence: str) -> None:
    found = fusetui("whatif", LESSON, change)
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith(sentence)


def test_whatif_without_a_change_is_refused(fusetui: Run) -> None:
    assert "needs a change" in fusetui("whatif", LESSON).err


def test_whatif_text_has_the_gain_and_the_next_limit() -> None:
    assert said(answer()).startswith(
        "With loader, a step (launched) would take 80 us instead of 100 us (estimate: "
        "20.0 % less). After the change, the CPU is the bottleneck: CPU threads take "
        "71 % of the critical path. Most of"
    )


def test_whatif_bound_is_printed_as_at_best() -> None:
    assert "100 us (at best: 20.0 % less). After" in said(answer(certainty="bound"))


def test_too_little_is_understood() -> None:
    share = 0.25
    found = answer(
        after_ns=None,
        residual_share=share,
        devices=(DeviceResidual(3, share),),
        limit=(),
    )
    assert found.abstains
    assert said(found).startswith("Unexplained delays: 25 % of the time on GPU 3.")
    assert "loader, because the trace explains too little of the time." in said(found)


def test_whatif_range_is_printed_with_both_ends() -> None:
    found = answer(after_ns=None, between_ns=(60_000, 70_000), certainty="estimate")
    assert "a step (launched) would take an estimated 60 us to 70 us" in said(found)


def test_names_of_a_trace_are_printable() -> None:
    row = PathRow("host", "\x1b[31mred", 1, 1, 1.0)
    assert "\x1b" not in describe_bottleneck([row], "") + format_path_rows([row], 80)


@pytest.mark.parametrize(
    ("times", "knee", "sentence"),
    [
        ([100, 100, 200], 0.5, "There is no further gain below x0.5."),
        ([100, 150, 200], None, "The gain continues down to the smallest factor."),
        ([200, 200, 200], None, "No factor changes this time."),
    ],
)
def test_whatif_sweep_says_from_where_on_it_no_longer_helps(
    times: list[int], knee: float | None, sentence: str
) -> None:
    points = tuple(SweepPoint(n / 2, ns) for n, ns in enumerate(times))
    found = Sweep("python", "step", (), 200, 0.0, points, knee)
    assert sentence in " ".join(format_sweep(found, 80).split())


def test_the_share_not_understood_after_a_change_is_told() -> None:
    found = answer(residual_share=0.125)
    assert said(found).startswith(
        "Unexplained delays: 13 % of the time after the change. Nothing"
    )


def test_path_of_an_empty_trace_says_that_there_is_none(
    tmp_path: Path, capsys: Any
) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"traceEvents": []}')
    assert run_command(["path", str(path)]) == 0
    assert "No critical path" in capsys.readouterr().out
