"""`serving`: text of some 40 lines, and the JSON document."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.servers import Server, python, save

Run = Callable[..., Any]
SERVER = Server()


@pytest.fixture
def served(tmp_path: Path) -> Path:
    save(tmp_path / "capture.json", SERVER.capture(4))
    steps = [SERVER.step(4, 1000 * n, n) for n in range(1, 20)]
    return save(tmp_path / "replay.json", *steps)


def test_serving_step_without_annotation_has_an_unknown_phase(
    fusetui: Run, tmp_path: Path
) -> None:
    """No annotation says what the replay does."""
    events = [
        event for event in SERVER.step(4, 0, 1) if event["cat"] != "user_annotation"
    ]
    text = fusetui("serving", save(tmp_path / "a.json", events)).out
    assert "An unknown step (hipGraphLaunch)" in text


def test_serving_text_lists_phases_limit_and_time_between(
    fusetui: Run, served: Path
) -> None:
    text = fusetui("serving", served).out
    assert "decode            19" in text
    assert "A decode step (step[DECODE bs=4])" in text
    assert "3 matrix products read 24.58 kB of weights" in text
    assert "Between model passes: 18 gaps," in text
    assert "In 19 of 19 graph replays, 247 events take their op" in text.replace(
        "\n  ", " "
    )
    assert text.count("\n") <= 40


def test_serving_text_shows_frames_without_folders(
    fusetui: Run, tmp_path: Path
) -> None:
    """They would fill the line; --json has all."""
    frame = python("/a/long/way/to/scheduler.py(12): schedule", 3100, 800)
    steps = [SERVER.step(4, 2000 * n, n) for n in range(1, 4)]
    path = save(tmp_path / "replay.json", *steps, [frame])
    assert "scheduler: scheduler.py(12): schedule" in fusetui("serving", path).out
    doing = fusetui("serving", path, "--json").json["between"]["doing"]
    assert frame["name"] in [one["what"] for one in doing]


def test_serving_json_lists_steps_joins_and_limits(fusetui: Run, served: Path) -> None:
    found = fusetui("serving", served, "--json").json
    assert [step["captured_tokens"] for step in found["steps"]] == [4] * 19
    assert found["joins"][0]["certainty"] == "certain"
    assert found["limits"][0]["limit"]["weight_bytes"] == 3 * 64 * 64 * 2
    assert found["between"]["count"] == 18


def test_a_configuration_that_is_none(fusetui: Run, served: Path) -> None:
    found = fusetui("serving", served, "--model-config", served)
    assert found.code == 2
    assert "has no num_hidden_layers" in found.sentence


def test_serving_of_a_trace_of_no_server_says_why_not(fusetui: Run) -> None:
    found = fusetui("serving", "lesson:mlp-eager")
    assert found.code == 0
    assert found.out.startswith(
        "Inconclusive: the trace has no server steps. No annotation"
    )
