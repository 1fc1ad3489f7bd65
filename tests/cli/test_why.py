"""`why` and `gaps`: the text that users read, and the keys that programs rely on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fusetui.analysis.why.answer import why
from fusetui.analysis.why.model import Ceiling, Finding
from fusetui.report.why import format_why
from fusetui.report.why_answer import answer

Run = Callable[..., Any]
File = Callable[..., Path]

KEYS = {
    "devices",
    "steps",
    "gaps",
    "ceiling",
    "modules",
    "findings",
    "cannot_tell",
    "cpu",
}
DEVICE = """
    device name span_ns compute_ns exposed_comm_ns exposed_copy_ns idle_ns hidden_comm_ns
    hidden_copy_ns launch_latency_usual_ns idle
"""
GAP = "device start_ns dur_ns idle previous next op annotation module frame drained_by"


def test_why_json_has_its_documented_keys(fusetui: Run, trace_file: File) -> None:
    found = fusetui("why", trace_file(), "--json")
    assert (found.code, found.err) == (0, "")
    assert found.json.keys() >= {*KEYS, "base_ns"}
    (device,) = found.json["devices"]
    assert device.keys() == set(DEVICE.split())
    assert (device["device"], device["name"]) == (0, "NVIDIA A100-SXM4-80GB")
    assert device["compute_ns"] == 12 * 100_250
    assert sum(device["idle"].values()) == device["idle_ns"]
    assert [step["name"] for step in found.json["steps"]] == [
        f"ProfilerStep#{n}" for n in (1, 2, 3)
    ]
    assert found.json["steps"][1]["start_ns"] == 2_000_000
    assert found.json["steps"][0]["devices"][0]["span_ns"] == 900_000
    assert {key for gap in found.json["gaps"] for key in gap} == set(GAP.split())
    assert found.json["base_ns"] == "0"
    (thread,) = found.json["cpu"]
    assert (thread["process"], thread["thread"]) == (1, 1)
    parts = [thread[f"{part}_ns"] for part in ("op", "python", "wait", "nothing")]
    assert sum(parts) == 4_000_000 + 900_000


def test_why_text_has_breakdown_gaps_and_findings(
    fusetui: Run, trace_file: File
) -> None:
    """300 us of each step of 900 are gaps between kernels, 15 before the first, 184
    after the last."""
    path = trace_file()
    found = fusetui("why", path)
    lines = found.out.splitlines()
    assert lines[0] == str(path)
    assert " ".join(lines[1:3]).startswith(
        "A step takes 900 us (wall; median of 3). The GPU is busy for 45 % of the "
        "step. Idle 499 us, of"
    )
    assert len(lines) <= 25
    assert "GPU 0 NVIDIA A100-SXM4-80GB" in found.out
    assert "with_stack=True" in found.out


@pytest.mark.parametrize(
    ("lengths", "told"),
    [
        ((100, 120, 180), "A step takes 120 us (wall; median of 3)."),
        ((100, 120, 140, 180), "A step takes 120 us (wall; lower median of 4)."),
        ((100, 180), "A step takes 100 us (wall; shorter of 2)."),
    ],
)
def test_the_median_step_is_a_step(
    trace_of: Callable[..., Any], event: Run, lengths: tuple[int, ...], told: str
) -> None:
    starts = [sum(lengths[:n]) for n in range(len(lengths))]
    events = [
        one
        for n, (ts, dur) in enumerate(zip(starts, lengths, strict=True))
        for one in (
            event(f"ProfilerStep#{n}", ts, dur, cat="user_annotation"),
            event("gemm", ts + 10, 50, cat="kernel", pid=0, tid=7),
        )
    ]
    assert answer(why(trace_of(events))).startswith(told)


def test_the_answer_tells_the_work_that_only_communicates(
    trace_of: Callable[..., Any], event: Run
) -> None:
    """Of 200 us the GPU is busy for 190, but computes only 60 or 185."""
    for computes, told in (
        (
            60,
            (
                "The GPU is busy for 95 % of the span; for 130 us of that, only communication runs."
            ),
        ),
        (185, "The GPU is busy for 95 % of the span."),
    ):
        names = (
            ("gemm", 0, computes),
            ("ncclDevKernel_AllReduce_Sum_f32", computes, 190 - computes),
        )
        work = [
            event(name, ts, dur, cat="kernel", pid=0, tid=7) for name, ts, dur in names
        ]
        last = event("gemm", 200, 0, cat="kernel", pid=0, tid=7)
        assert f"The GPU's span is 200 us. {told} Idle 10 us" in answer(
            why(trace_of([*work, last]))
        )


def test_a_gap_of_1_ns_is_not_listed(
    trace_of: Callable[..., Any],
) -> None:
    """1 ns lies between the first two kernels, 10 us between the others."""
    kernels = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": name,
            "pid": 0,
            "tid": 7,
            "ts": ts,
            "dur": 5,
        }
        for name, ts in (("one", 0), ("two", 5.001), ("three", 20))
    ]
    found = why(trace_of(kernels))
    assert len(found.gaps) == 2
    lines = format_why(found, 96).split("\n")
    assert [line.split()[-1] for line in lines if "before" in line] == ["three"]


def test_the_first_finding_is_always_told(
    trace_of: Callable[..., Any], event: Run
) -> None:
    """In few lines its remedy makes room for it, then the ceiling does."""
    kernels = [
        event("gemm", ts, 10, cat="kernel", pid=0, tid=7) for ts in range(0, 1000, 20)
    ]
    text, remedy = " ".join(["long"] * 40), " ".join(["remedy"] * 30)
    long = Finding(rule="x", text=text, certainty="certain", try_=remedy)
    found = replace(
        why(trace_of(kernels)),
        findings=(long, long),
        ceiling=Ceiling(9, 9, 9, 9),
        cannot_tell=(),
    )
    shown = [format_why(found, 96, below) for below in (6, 9, 12)]
    assert all("\n1. long" in text for text in shown)
    assert ["Try:" in text for text in shown] == [True, False, False]
    assert ["If kernels reached the data-sheet rates" in text for text in shown] == [
        True,
        True,
        False,
    ]


def test_why_step_answers_about_that_step(fusetui: Run, trace_file: File) -> None:
    found = fusetui("why", trace_file(), "--step", 2, "--json").json
    assert [step["name"] for step in found["steps"]] == ["ProfilerStep#2"]
    assert found["devices"] == found["steps"][0]["devices"]
    assert len(found["gaps"]) == 5  # one began before the step, one ends after it
    assert all(gap["start_ns"] + gap["dur_ns"] > 2_000_000 for gap in found["gaps"])
    assert (
        fusetui("why", trace_file(), "--step", 2)
        .out.split("\n")[1]
        .startswith("ProfilerStep#2")
    )


def test_the_ceiling_of_a_step_is_about_its_kernels(
    fusetui: Run, trace_file: File
) -> None:
    path = trace_file()
    whole, step = (
        fusetui("why", path, *options, "--json").json for options in ([], ["--step", 2])
    )
    for found, kernels in ((whole, 12), (step, 4)):
        assert (
            found["ceiling"]["known_ns"] + found["ceiling"]["unknown_ns"]
            == kernels * 100_250
        )
    assert (whole["modules"], step["modules"]) == ([], None)


@pytest.mark.parametrize("window", [("2ms", "2.9ms"), ("2000000", "2900000")])
def test_why_from_to_equals_the_step_of_that_time(
    fusetui: Run, trace_file: File, window: tuple[str, str]
) -> None:
    path = trace_file()
    step = fusetui("why", path, "--step", 2, "--json").json
    found = fusetui("why", path, "--from", window[0], "--to", window[1], "--json").json
    assert found["devices"] == step["devices"]
    assert found["about"] == "from 2 ms to 2.9 ms"


def test_why_step_by_takes_matching_annotations_as_steps(
    fusetui: Run, trace_file: File
) -> None:
    found = fusetui("why", trace_file(), "--step-by", "Step#[12]", "--json").json
    assert [step["name"] for step in found["steps"]] == [
        "ProfilerStep#1",
        "ProfilerStep#2",
    ]


def test_two_traces_without_a_gpu_have_no_table(fusetui: Run) -> None:
    found = fusetui("why", "sample:mlp-eager", "sample:mlp-compiled")
    assert found.out.rstrip().endswith("To compare CPU ops, use fusetui diff.")
    shown = fusetui("why", "sample:mlp-eager", "sample:mlp-compiled", "--markdown").out
    assert shown.rstrip().endswith("To compare CPU ops, use fusetui diff.")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--step", "7"], "has no step 7"),
        (["--device", "3"], "has no GPU events on device 3, only on 0"),
        (["--step-by", "nothing"], "has no annotation that matches nothing"),
        (
            ["--from", "soon"],
            "--from takes a time with a unit, such as 12.5ms, not soon",
        ),
        (["--from", "2ms", "--to", "1ms"], "The window is empty"),
        (["--json", "--markdown"], "not both"),
    ],
)
def test_why_of_a_missing_step_or_device_is_refused(
    fusetui: Run, trace_file: File, options: list[str], sentence: str
) -> None:
    found = fusetui("why", trace_file(), *options)
    assert (found.code, found.out) == (2, "")
    assert sentence in found.sentence


def test_why_device_of_the_only_gpu_equals_the_whole(
    fusetui: Run, trace_file: File
) -> None:
    path = trace_file()
    found = fusetui("why", path, "--device", 0, "--json")
    assert found.json == fusetui("why", path, "--json").json


def test_gaps_json_lists_gaps_longest_first(fusetui: Run, trace_file: File) -> None:
    path = trace_file()
    found = fusetui("gaps", path, "--json").json
    assert found["gaps"] == fusetui("why", path, "--json").json["gaps"]
    lengths = [gap["dur_ns"] for gap in found["gaps"]]
    assert lengths == sorted(lengths, reverse=True)
    assert found["gaps_count"] == len(lengths) == 11
    text = fusetui("gaps", path).out
    assert len(text.splitlines()) == 12
    assert (
        " ".join(text.splitlines()[1].split()[:6]) == "1.3 ms 715.3 us nothing recorded"
    )
    assert text.splitlines()[-1].endswith("ProfilerStep#3")


@pytest.fixture
def many_gaps(tmp_path: Path) -> Path:
    kernels = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": "k",
            "pid": 0,
            "tid": 7,
            "ts": 10 * n,
            "dur": 1,
        }
        for n in range(151)
    ]
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"traceEvents": kernels}))
    return path


def test_the_longest_gaps_unless_all_are_asked_for(
    fusetui: Run, many_gaps: Path
) -> None:
    assert len(fusetui("gaps", many_gaps, "--json").json["gaps"]) == 100
    assert len(fusetui("gaps", many_gaps, "--json", "--all").json["gaps"]) == 150
    assert ("... and 130 more gaps; those shown are 13 %") in fusetui(
        "gaps", many_gaps
    ).out
    assert len(fusetui("gaps", many_gaps, "--all").out.splitlines()) == 151


def test_why_of_two_traces_lists_differences_by_class(
    fusetui: Run, trace_file: File
) -> None:
    """B's kernels and steps take 1.2 times as long."""
    a, b = trace_file("a.json"), trace_file("b.json", 1.2)
    found = fusetui("why", a, b, "--json").json
    assert found["a"] == fusetui("why", a, "--json").json
    assert found["b"] == fusetui("why", b, "--json").json
    change = {one["class"]: (one["a_ns"], one["b_ns"]) for one in found["change"]}
    assert change["span"] == (900_000, 1_080_000)
    assert change["compute"] == (4 * 100_250, 4 * 120_300)
    parts = ("compute", "exposed_comm", "exposed_copy", "idle")
    for side in (0, 1):
        assert (
            sum(change[name][side] for name in parts if name in change)
            == change["span"][side]
        )
    text = fusetui("why", a, b).out
    assert "B's median step is 20.0 % longer." in text
    shown = fusetui("why", a, b, "--markdown").out
    assert "B's median step is 20.0 % longer." in shown
    assert "| compute | 401 us | 481.2 us | +80.2 us |" in shown


def test_why_markdown_has_tables_of_step_and_span(
    fusetui: Run, trace_file: File
) -> None:
    found = fusetui("why", trace_file(), "--markdown").out
    assert "| step | share | span | share |" in found
    assert "| compute | 401 us | 45 % | 1.203 ms |" in found
    assert "| annotation | ProfilerStep\\#1 |" in found


def test_why_without_a_gpu_accounts_for_cpu_threads(
    fusetui: Run, tmp_path: Path
) -> None:
    op = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        "pid": 1,
        "tid": 1,
        "ts": 0,
        "dur": 5,
    }
    path = tmp_path / "cpu.json"
    path.write_text(json.dumps({"traceEvents": [op]}))
    found = fusetui("why", path, "--json").json
    assert (found["devices"], found["gaps"]) == ([], [])
    assert found["cpu"][0]["op_ns"] == 5_000
    assert found["cannot_tell"][0]["missing"] == "GPU events"
    text = fusetui("why", path).out
    assert "No GPU events were recorded. The breakdown covers 1 CPU thread." in text
    assert "ProfilerActivity" not in text
    assert "5 us" in fusetui("why", path, "--markdown").out
    assert fusetui("gaps", path).out == "no GPU events in this trace\n"


def test_why_of_an_empty_trace_exits_with_0(fusetui: Run, tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text('{"traceEvents": []}')
    assert fusetui("why", path).code == 0
    assert fusetui("why", path, "--json").json["cpu"] == []
    assert fusetui("why", path, path).code == 0


def test_answers_fit_a_screen(
    fusetui: Run, monkeypatch: pytest.MonkeyPatch, any_trace: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    found = fusetui("why", any_trace)
    lines = found.out.splitlines()
    assert found.code == 0
    assert 2 <= len(lines) <= 25
    assert max(map(len, lines)) <= 60


def test_a_file_that_ends_early_may_hold_the_rest(
    fusetui: Run, trace_file: File
) -> None:
    """Cut within its second event."""
    path = trace_file()
    text = path.read_text()
    path.write_text(text[: text.index("}", text.index("}, {") + 4)])
    found = fusetui("why", path)
    assert (
        "The file ends before the first GPU event. The breakdown covers 1 CPU thread."
    ) in found.out
    assert (
        "Not recorded in the part that was read: GPU events (add ProfilerActivity.CUDA);"
    ) in found.out


BUSY = [
    {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "name": name, "ts": ts, "dur": dur}
    for name, ts, dur in (("mine", 0, 60), ("yours", 60, 30), ("mine", 91, 9))
]


def test_a_busy_gpu_is_told_by_kernel(
    fusetui: Run, write: Callable[[str], Path]
) -> None:
    """69 and 30 of 99 us."""
    found = fusetui("why", write(json.dumps({"traceEvents": BUSY})))
    assert "GPU time by kernel: mine 70 %, yours 30 %." in found.out
    idle = [BUSY[0], BUSY[2] | {"ts": 900}]
    assert (
        "by kernel" not in fusetui("why", write(json.dumps({"traceEvents": idle}))).out
    )


def test_why_all_prints_the_whole_breakdown(
    fusetui: Run, write: Callable[[str], Path]
) -> None:
    found = fusetui("why", "--all", write(json.dumps({"traceEvents": BUSY})))
    assert "69 us   70 %      2  mine" in found.out


def test_all_findings_are_printed_with_what_to_try(
    trace_of: Callable[..., Any],
) -> None:
    text = "It is slow. " * 20
    one = Finding(
        rule="rule", text=text, certainty="certain", at_stake_ns=1, try_="This."
    )
    found = replace(why(trace_of(BUSY)), findings=(one,) * 30)
    assert format_why(found, 80).count("Try: This.") == 1
    assert "more findings (--all prints all)" in format_why(found, 80)
    assert format_why(found, 80, everything=True).count("Try: This.") == 30


def test_why_lists_estimated_gains(fusetui: Run) -> None:
    """Unless that is not wanted."""
    lesson = "lesson:mlp-eager"
    found = fusetui("why", lesson, "--json").json
    assert found["worth_of"] == "step"
    assert found["findings"][0]["worth_ns"] > 0
    text = " ".join(fusetui("why", lesson).out.split())
    assert "Estimated gain: at most " in text
    without = fusetui("why", lesson, "--no-worth", "--json").json
    assert (without["worth_of"], without["findings"][0]["worth_ns"]) == (None, None)
    assert without["findings"][0]["worth_note"] == "left_out"
    assert "stimated gain" not in fusetui("why", lesson, "--no-worth").out


def test_why_together_reports_the_combined_gain(fusetui: Run) -> None:
    document = fusetui("why", "lesson:mlp-eager", "--together", 3, "--json").json
    found = document["together"]
    with_worth = [one for one in document["findings"][:3] if one["worth_ns"]]
    assert found["findings"] == len(with_worth) > 0
    assert found["after_ns"] < found["before_ns"]
    assert "the first finding" not in fusetui("why", "lesson:mlp-eager").out


@pytest.mark.parametrize("other", ["--no-worth", "lesson:mlp-compiled"])
def test_together_is_about_the_worth_of_one_trace(fusetui: Run, other: str) -> None:
    found = fusetui("why", "lesson:mlp-eager", other, "--together", 2)
    assert (found.code, found.out) == (2, "")
    assert "--together" in found.sentence


def test_steps_that_take_no_time(fusetui: Run, tmp_path: Path) -> None:
    """What a finding is worth is no share of them."""
    step = {
        "cat": "user_annotation",
        "name": "ProfilerStep#3",
        "pid": 1,
        "tid": 1,
        "dur": 0,
    }
    copy = {
        "cat": "gpu_memcpy",
        "name": "Memcpy PtoP (Device -> Device)",
        "pid": 0,
        "tid": 8,
    }
    events = [{"ph": "X", "ts": 0, **one} for one in (step, {**copy, "dur": 0.005})]
    path = tmp_path / "steps.json"
    path.write_text(json.dumps({"traceEvents": events}))
    found = fusetui("why", path, "--json")
    assert (found.code, found.err) == (0, "")
    assert {one["worth_share"] for one in found.json["findings"]} <= {0.0, None}
