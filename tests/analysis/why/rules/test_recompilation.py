"""Compilation inside what was recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .conftest import Ask

Make = Callable[..., Any]


def test_recompilation_reports_idle_time_during_compilation(
    found: Ask, event: Make, launched: Make
) -> None:
    compiling = event("compile_fx_inner (dynamo_timed)", 20, 60, cat="user_annotation")
    (finding,) = found(
        "recompilation", [*launched(1, 0, 5), compiling, *launched(2, 90, 95)]
    )
    assert finding.at_stake_ns == 60_000


def test_a_kernel_of_triton_alone_is_not_laid_to_torch_compile(
    found: Ask, event: Make, launched: Make
) -> None:
    """Without steps, either: nothing says that the compilation is inside of one."""
    compiling = event(
        "triton/compiler/compiler.py(229): compile", 20, 60, cat="python_function"
    )
    (finding,) = found(
        "recompilation", [*launched(1, 0, 5), compiling, *launched(2, 90, 95)]
    )
    assert finding.text.endswith(
        "while torch.compile or Triton compiles during the recording."
    )


def test_running_compiled_code_is_silent(
    found: Ask, event: Make, launched: Make
) -> None:
    running = event("Torch-Compiled Region: 0/0", 20, 60)
    assert (
        found("recompilation", [*launched(1, 0, 5), running, *launched(2, 90, 95)])
        == []
    )


def regions(event: Make, *names: str) -> list[dict[str, Any]]:
    return [
        event(f"Torch-Compiled Region: {name}", 20 + n, 1)
        for n, name in enumerate(names)
    ]


def test_several_regions_may_be_graph_breaks(
    found: Ask, event: Make, launched: Make
) -> None:
    events = [
        *launched(1, 0, 5),
        *regions(event, "0/0", "1/0", "2/1"),
        *launched(2, 90, 95),
    ]
    (finding,) = found("recompilation", events)
    assert finding.at_stake_ns is None
    assert finding.certainty == "likely"
    assert finding.text.startswith(
        "A step runs 3 compiled regions (Torch-Compiled Region: 0/0, "
    )
    assert (
        "Either graph breaks split the program, or its functions are compiled"
        in finding.text
    )


def test_functions_that_are_compiled_one_by_one_are_silent(
    found: Ask, event: Make, launched: Make
) -> None:
    """Stacks were recorded, and no function continues after a break."""
    frame = event("layernorm.py(16): rms_forward", 20, 5, cat="python_function")
    parts = regions(event, "0/0", "1/0", "2/1", "3/1")
    assert (
        found(
            "recompilation", [*launched(1, 0, 5), *parts, frame, *launched(2, 90, 95)]
        )
        == []
    )


def test_a_function_that_continues_after_a_break_is_certain(
    found: Ask, event: Make, launched: Make
) -> None:
    resumed = event(
        "m.py(9): torch_dynamo_resume_in_forward_at_9", 20, 5, cat="python_function"
    )
    events = [
        *launched(1, 0, 5),
        *regions(event, "0/0", "1/0"),
        resumed,
        *launched(2, 90, 95),
    ]
    (finding,) = found("recompilation", events)
    assert finding.certainty == "certain"
    assert "graph breaks split the program." in finding.text
    assert finding.text.endswith("after a break.")


def test_one_compiled_region_run_repeatedly_is_no_recompilation(
    found: Ask, event: Make, launched: Make
) -> None:
    events = [*launched(1, 0, 5), *regions(event, *["0/0"] * 4), *launched(2, 90, 95)]
    assert found("recompilation", events) == []


def test_regions_of_different_steps_are_silent(
    found: Ask, event: Make, launched: Make
) -> None:
    steps = [
        event(f"ProfilerStep#{n}", 20 + n, 1, cat="user_annotation") for n in range(3)
    ]
    parts = regions(event, "0/0", "1/0", "2/0")
    assert found("recompilation", [*launched(1, 0, 5), *steps, *parts]) == []


def test_a_function_that_was_compiled_anew_is_no_further_region(
    found: Ask, event: Make, launched: Make
) -> None:
    """The second number counts compilations of the same function, for other inputs."""
    again = regions(event, "0/0", "0/1", "0/2", "0/3", "1/0")
    assert (
        found("recompilation", [*launched(1, 0, 5), *again, *launched(2, 90, 95)]) == []
    )
    more = regions(event, "0/0", "0/1", "1/0", "2/0")
    (finding,) = found(
        "recompilation", [*launched(1, 0, 5), *more, *launched(2, 90, 95)]
    )
    assert finding.text.startswith(
        "A step runs 3 compiled regions (Torch-Compiled Region: 0/0, "
    )
