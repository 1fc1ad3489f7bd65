"""The answer to why, of all real traces and of those of servers."""

from __future__ import annotations

from tests.cli.conftest import fusetui
from tests.cli.test_why import Run, test_answers_fit_a_screen
from tests.real.traces import each_of, listed, real

any_trace = each_of(listed())


def test_two_traces_of_which_one_begins_with_older_work(fusetui: Run) -> None:
    vllm, sglang = (real(f"mi300_{name}_decode_graph") for name in ("vllm", "sglang"))
    found = fusetui("why", vllm, sglang)
    assert "\nB: The GPU is idle for 463.3 ms" in found.out


def test_a_server_that_runs_ahead_blames_no_host(fusetui: Run) -> None:
    """The step only launches and the GPU runs it later, so the answer is about the
    GPU's span."""
    found = fusetui("why", real("mi300_vllm_decode_graph")).out
    assert (
        "The GPU's span is 10.74 ms. The GPU is busy for 99.8 % of the span."
        in " ".join(found.split())
    )
    assert "Python" not in found
