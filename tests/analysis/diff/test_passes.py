"""Traces of inference servers are compared by passes of the model."""

from __future__ import annotations

from pathlib import Path

from tests.analysis.servers import Server, call, cpu, gpu, opened

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff
from fusetui.trace import Trace
from fusetui.trace.layout.steps import StepLength

SERVER = Server()
MODEL_NS = sum(launch.ns for launch in SERVER.launches(4)) + 12 * 500


def decoding(path: Path, count: int, every: int) -> Trace:
    """This many decode steps of one server, one every so many us."""
    return opened(path, *(SERVER.step(4, every * n, n) for n in range(1, count + 1)))


def compared(folder: Path, count: int, every: tuple[int, int]) -> Diff:
    a, b = (
        decoding(folder / f"{n}.json", count, us)
        for n, us in zip("ab", every, strict=True)
    )
    return diff(a, b)


def test_a_step_lasts_from_the_end_of_the_one_before(tmp_path: Path) -> None:
    """Six of seven steps follow another one; B waits 100 us longer before each."""
    found = compared(tmp_path, 7, (1000, 1100))
    assert (found.side_a.steps, found.side_a.items) == (6, 13)
    assert (found.step.a_ns, found.step.b_ns) == (1_000_000, 1_100_000)
    assert found.step.length_a is StepLength.LAUNCHED
    assert (found.accounting.idle_ns, found.accounting.not_explained_ns) == (100_000, 0)
    assert any(
        "each server step with a model pass, measured from the end of the previous "
        "step," in note
        for note in found.notes
    )
    assert any(
        "13 of 91 GPU events are outside the model passes" in note
        for note in found.notes
    )


def test_two_passes_have_one_that_follows_another(tmp_path: Path) -> None:
    """The first one is half of the work, and counts on neither side."""
    found = compared(tmp_path, 2, (1000, 1100))
    assert found.side_a.steps == 1
    assert (found.step.a_ns, found.step.b_ns) == (1_000_000, 1_100_000)


def test_a_single_pass_ends_with_its_last_kernel(tmp_path: Path) -> None:
    found = compared(tmp_path, 1, (1000, 5000))
    assert (found.step.a_ns, found.step.b_ns) == (MODEL_NS, MODEL_NS)
    assert found.step.length_a is StepLength.SPAN
    assert any("the model pass plus all later work" in note for note in found.notes)


def test_a_kernel_belongs_to_the_pass_in_which_it_runs(tmp_path: Path) -> None:
    """Each graph is launched 10 us before its first kernel, while the pass before still
    lasts. All kernels of B's additional layer are part of its passes."""
    sides = []
    for layers in (3, 4):
        server = Server(layers=layers)
        steps = [server.step(4, 1000 * n, n) for n in range(1, 8)]
        sides.append(opened(tmp_path / f"{layers}.json", *steps))
    found = diff(*sides).accounting
    assert (found.later_ns, found.earlier_ns) == (0, 0)


def test_single_pass_among_longer_work_compares_the_whole_trace(tmp_path: Path) -> None:
    """One pass among kernels that take longer than it: all of the trace is compared."""
    eager = SERVER._called(SERVER.launches(4)[0], 3000, "hip", 9, ran=True)
    eager[-1]["dur"] = 1000
    trace = opened(
        tmp_path / "a.json", SERVER.step(4, 1000, 1), eager, [cpu("aten::add", 1, 9)]
    )
    assert any(
        "the whole trace counts as one step" in n for n in diff(trace, trace).notes
    )


def with_head(path: Path, ns: int) -> Trace:
    """One pass that replays a graph, and the product after it that the same step
    launches."""
    step = SERVER.step(4, 1000, 1)
    after = step[-1]["ts"] + step[-1]["dur"] + 2
    head = [
        call("hipLaunchKernel", 1052, 2, 99),
        gpu("lm_head_kernel", after, ns / 1000, 99),
    ]
    return opened(path, [*step, *head])


def test_a_single_pass_holds_what_follows_the_graph(tmp_path: Path) -> None:
    found = diff(*(with_head(tmp_path / f"{ns}.json", ns) for ns in (8000, 12_000)))
    changed = [row for row in found.rows if row.change_ns and not row.on_cpu]
    assert [(row.b, row.change_ns) for row in changed] == [(("lm_head_kernel",), 4000)]
    assert found.accounting.step_ns == 4000
