"""Lessons have the keys of a trace that was recorded on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.real.traces import real
from tests.sample_traces.test_lesson_structure import (
    OF_KERNELS_SINCE_2026,
    document,
    keys,
)

from fusetui.sample_traces import lessons

OF_SOME_FRAMES = {"Python module id"}
OF_ONE_RECORDING = {
    *("metadata", "with_flops", "distributedInfo"),
    *("mast_job_name", "PT_PROFILER_JOB_NAME", "PT_PROFILER_JOB_VERSION"),
}


@pytest.fixture
def recorded() -> Path:
    """A trace of an H100 with shapes, memory, stacks and modules."""
    return real("h100_bert-small")


@pytest.mark.parametrize("name", lessons.names())
def test_events_have_the_keys_of_recorded_ones(name: str, recorded: Path) -> None:
    found, known = keys(lessons.path(name))[0], keys(recorded)[0]
    assert found.keys() <= known.keys()
    assert {of: found[of] for of in found} == {of: known[of] for of in found}


@pytest.mark.parametrize("name", ["mlp-eager", "linear-eager"])
def test_args_have_the_keys_of_recorded_ones(name: str, recorded: Path) -> None:
    found, known = keys(lessons.path(name))[1], keys(recorded)[1]
    for of, names in found.items():
        newer = {
            "kernel": OF_KERNELS_SINCE_2026,
            "cpu_instant_event": {"finished"},
            "python_function": OF_SOME_FRAMES,
        }.get(of[1], set())
        assert names - newer == known[of] - newer, of


def test_keys_of_the_file_are_those_of_recorded_ones(recorded: Path) -> None:
    found, known = document(lessons.path("mlp-eager")), document(recorded)
    assert found.keys() - known.keys() == {"reconstructed", "host_name"}
    assert known.keys() - found.keys() <= OF_ONE_RECORDING
    devices = (found["deviceProperties"][0], known["deviceProperties"][0])
    assert devices[0].keys() == devices[1].keys()
