"""`--captured-by`: replayed kernels have the ops of their capture in every command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.servers import Server, save

Run = Callable[..., Any]
SERVER = Server()


@pytest.fixture
def replay(tmp_path: Path) -> Path:
    (tmp_path / "captures").mkdir()
    save(tmp_path / "captures" / "4.json", SERVER.capture(4))
    return save(tmp_path / "replay.json", SERVER.step(4, 0, 1))


def test_captured_by_gives_replayed_kernels_their_op_and_shape(
    fusetui: Run, replay: Path
) -> None:
    captures = replay.parent / "captures"
    found = fusetui(
        "kernels", replay, "--by", "op", "--captured-by", captures, "--json"
    ).json
    assert found["kernels"][0]["op"] == "aten::mm"
    assert "In 1 of 1 graph replays, 13 events" in found["note"]
    shaped = fusetui(
        "kernels", replay, "--by", "shape", "--captured-by", captures, "--json"
    ).json
    assert shaped["kernels"][0]["shapes"] == [[4, 64], [64, 64]]


def test_captured_by_gives_replayed_kernels_their_module(
    fusetui: Run, replay: Path
) -> None:
    text = fusetui("modules", replay, "--captured-by", replay.parent / "captures").out
    assert "0 ns" not in text  # the CPU ran no module of a replay
    assert "Attention_*" in text
    assert "take their op, module and shapes from the capture" in text.replace(
        "\n  ", " "
    )


@pytest.mark.parametrize(
    "command", ["summary", "ops", "lines", "why", "gaps", "launches"]
)
def test_every_command_says_it(fusetui: Run, replay: Path, command: str) -> None:
    found = fusetui(command, replay, "--captured-by", replay.parent / "captures")
    assert found.code == 0
    assert "In 1 of 1 graph replays, 13 events" in found.out


def test_a_capture_that_does_not_fit(
    fusetui: Run, replay: Path, tmp_path: Path
) -> None:
    other = save(tmp_path / "captures" / "other.json", Server(layers=5).capture(4))
    found = fusetui("kernels", replay, "--captured-by", other)
    assert "1 graph replay cannot be joined" in found.sentence
    assert "13 events" not in found.out


def test_why_names_the_modules_of_the_capture(fusetui: Run, replay: Path) -> None:
    captures = replay.parent / "captures"
    found = fusetui("why", replay, "--captured-by", captures, "--json").json
    assert {"Linear_*", "Attention_*"} <= {one["module"] for one in found["modules"]}


def test_captured_by_gives_replayed_kernels_their_function(
    fusetui: Run, replay: Path
) -> None:
    found = fusetui(
        "lines", replay, "--captured-by", replay.parent / "captures", "--json"
    ).json
    (function,) = found["functions"]
    assert (function["file"], function["line"], function["kernels"]) == (
        "model.py",
        7,
        13,
    )
    assert (function["gpu_ns"], function["cpu_ns"]) == (1000 + 3 * 16_500, 0)


def test_diff_of_replays_aligns_by_captured_ops(fusetui: Run, tmp_path: Path) -> None:
    """The captures are found beside the replays."""
    for folder, server in (
        ("a", SERVER),
        ("b", Server(product="Cijk_Alik_Bljk_other")),
    ):
        (tmp_path / folder).mkdir()
        save(
            tmp_path / folder / "replay.json",
            server.step(4, 0, 1),
            server.step(4, 500, 2),
        )
        save(tmp_path / folder / "capture.json", server.capture(4))
    pair = (tmp_path / "a" / "replay.json", tmp_path / "b" / "replay.json")
    assert "aten::mm" in fusetui("diff", *pair).out
