"""The closing table."""

from dataclasses import replace

from tests.hostile import WORST, obeyed

from fusetui.capture.record import FORMAT, Failed, Measured, RunRecord, StepTime
from fusetui.capture.table import format_run


def measured(name: str, median_ns: int) -> Measured:
    step_ns = StepTime(median_ns, median_ns, median_ns, 10)
    return Measured(
        name=name,
        step_ns=step_ns,
        compile_ns=None,
        compile_cached=None,
        peak_memory_bytes=None,
        max_error=0.00123,
        kernels_per_step=5,
        files=(f"{name}.json.gz",),
        weight_bytes=1536,
    )


def record(*variants: Measured | Failed, device_kind: str = "cuda") -> RunRecord:
    return RunRecord(
        format=FORMAT,
        created="2026-01-31T17:45:00+00:00",
        workload="mlp",
        summary="an MLP",
        shapes={"batch": 4},
        shapes_shrunk=device_kind == "cpu",
        dtype="bfloat16",
        device="Some Device",
        device_kind=device_kind,
        versions={"torch": "2"},
        seed=0,
        profiled_steps=3,
        variants=variants,
    )


def test_rows_compare_with_the_first_variant_that_ran() -> None:
    table = format_run(
        record(Failed("a", "no."), measured("b", 3_000_000), measured("c", 10**6))
    )
    assert [line.split() for line in table.splitlines()[3:6]] == [
        ["a", "-", "-", "-", "-", "-"],
        ["b", "3", "ms", "1.00x", "5", "1.536", "kB", "0.0012"],
        ["c", "1", "ms", "3.00x", "5", "1.536", "kB", "0.0012"],
    ]


def test_a_backward_pass_has_the_error_of_its_gradients() -> None:
    ran = replace(measured("b", 1000), max_gradient_error=0.0123)
    forward, backward = (
        format_run(replace(record(Failed("a", "no."), ran), backward=both))
        for both in (False, True)
    )
    assert "gradient" not in forward
    assert "largest gradient error" in backward
    assert [line.split()[-1] for line in backward.splitlines()[3:5]] == ["-", "1.23%"]


def test_no_name_begins_a_line_of_its_own() -> None:
    found = replace(
        record(Failed("a", WORST), measured("b", 1000)), workload=WORST, device=WORST
    )
    lines = format_run(found).split("\n")
    assert not [line for line in lines if line.startswith("PWN")]
    assert obeyed("".join(lines)) == set()


def test_the_columns_are_aligned() -> None:
    table = format_run(record(measured("a", 1000), measured("longer", 999_000)))
    assert len({len(line) for line in table.splitlines()[2:5]}) == 1


def test_a_failed_variant_says_why_below() -> None:
    table = format_run(record(measured("a", 1000), Failed("fused", "it needs a GPU.")))
    assert table.endswith("fused: it needs a GPU.")


def test_the_title_tells_what_was_run() -> None:
    table = format_run(record(measured("a", 1000)))
    assert table.startswith("mlp on cuda (Some Device), bfloat16, batch=4\n")


def test_on_a_cpu_it_says_that_shapes_are_smaller() -> None:
    assert "smaller than on a GPU" in format_run(
        record(measured("a", 1), device_kind="cpu")
    )


def test_the_title_tells_of_training_and_mode() -> None:
    trained = replace(record(measured("a", 1)), backward=True, mode="reduce-overhead")
    title = format_run(trained).splitlines()[0]
    assert title.endswith("batch=4, forward and backward, mode reduce-overhead")


def test_a_doubtful_measurement_has_a_note() -> None:
    busy = replace(
        measured("a", 1000), step_ns=StepTime(1000, 900, 5000, 10), settled=False
    )
    table = format_run(record(busy))
    assert "a: its step time had not settled" in table
    assert "a: its steps took from 900 ns to 5 us: something else was running." in table


def test_the_time_to_compile_is_told() -> None:
    compiled = replace(
        measured("a", 1000), compile_ns=3_500_000_000, compile_cached=True
    )
    line = (
        "a: its first call, which compiles, took 3.5 s, with kernels from the disk "
        "cache."
    )
    assert line in format_run(record(compiled)).splitlines()


def test_recompiling_has_a_note() -> None:
    table = format_run(record(replace(measured("a", 1000), recompilations=2)))
    assert "a: compiled 2 more graphs after the first step." in table


def test_a_step_that_was_never_timed_has_no_speed_up() -> None:
    table = format_run(
        record(replace(measured("a", 1), step_ns=None), measured("b", 1000))
    )
    assert [line.split()[1] for line in table.splitlines()[3:5]] == ["-", "1"]
