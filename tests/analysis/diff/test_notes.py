"""What is said before the rows: other machines, versions, shapes, and files cut
short."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fusetui.analysis.diff.compare import diff
from fusetui.trace import Trace, open_trace

Build = Callable[..., Trace]


def mm(*dims: list[int], dtype: str = "c10::BFloat16") -> list[tuple[object, ...]]:
    return [("aten::mm", "gemm", 20.0, 7, list(dims), dtype)]


def test_devices_are_named_first(build: Build) -> None:
    a = build(
        mm(), deviceProperties=[{"id": 0, "name": "A100"}], cuda_runtime_version=12040
    )
    b = build(
        mm(), deviceProperties=[{"id": 0, "name": "H100"}], cuda_runtime_version=13000
    )
    notes = diff(a, b).notes
    assert notes[0] == "devices differ: A100 -> H100"
    assert "runtime versions differ: CUDA 12.4 -> CUDA 13.0" in notes


def test_versions_that_are_equal_or_unknown_are_no_difference(build: Build) -> None:
    known = build(mm(), torch_version="2.9.0")
    unknown = build(mm())
    for other in (known, unknown):
        notes = diff(known, other).notes
        assert not any("PyTorch versions differ" in note for note in notes)


def test_gpu_against_cpu_is_the_first_note(build: Build) -> None:
    found = diff(build([("aten::mm", None, 900.0)]), build(mm()))
    assert found.notes[0] == "devices differ: CPU only -> a GPU"


def test_different_shapes_and_dtypes_are_noted_with_their_op(build: Build) -> None:
    a = build(mm([8, 16], [16, 4]))
    b = build(mm([8, 32], [32, 4], dtype="float"))
    notes = diff(a, b).notes
    assert "shapes differ in aten::mm: [8, 16] x [16, 4] -> [8, 32] x [32, 4]" in notes
    assert "dtypes differ in aten::mm: bfloat16 x bfloat16 -> float x float" in notes


def test_equal_inputs_in_another_order_are_no_difference(build: Build) -> None:
    wide, narrow = mm([8, 32], [32, 4]), mm([8, 16], [16, 4])
    notes = diff(build([*wide, *narrow]), build([*narrow, *wide])).notes
    assert not any("shapes differ" in note for note in notes)


def test_a_file_cut_short(build: Build, tmp_path: Path) -> None:
    text = Path(build(mm()).report.path).read_text()
    path = tmp_path / "cut.json"
    path.write_text(text[:-40])
    notes = diff(open_trace(str(path)), build(mm())).notes
    assert "cut: the file is truncated" in notes


def test_a_run_that_drifts(build: Build) -> None:
    factors = [1 + 0.04 * n for n in range(8)]
    notes = diff(build(mm(), factors), build(mm(), (1.0,) * 8)).notes
    assert any(
        "became" in note and "slower from its first step to its last" in note
        for note in notes
    )


def test_two_ranks_of_one_job_are_noted_with_the_ranks_command(build: Build) -> None:
    def rank(number: int) -> Trace:
        return build(mm(), distributedInfo={"rank": number, "world_size": 4})

    assert any(
        "ranks 0 and 3 of one job" in note for note in diff(rank(0), rank(3)).notes
    )
    assert any(
        "fusetui ranks shows which rank waits" in note
        for note in diff(rank(0), rank(3)).notes
    )
    assert not any("of one job" in note for note in diff(rank(1), rank(1)).notes)


def test_figures_of_few_of_many_steps_are_said(build: Build) -> None:
    """Five steps of six do other work, each another: the figures are of the one that is
    left."""
    usual = [("aten::mm", "gemm", 20.0)]
    odd = {n: [(f"aten::op{n}", f"kernel_{n}", 20.0)] for n in range(1, 6)}
    found = diff(build(usual, (1.0,) * 6, odd=odd), build(usual, (1.0,) * 6))
    assert any("figures cover 1 of 6 steps" in note for note in found.notes)
    assert not any(
        "figures cover" in note for note in diff(build(usual), build(usual)).notes
    )


CONV_KERNEL = "cudnn_infer_ampere_scudnn_128x64_relu_medium_nn_v1"


def little_in_common(a: Trace, b: Trace) -> list[str]:
    return [note for note in diff(a, b).notes if "in common" in note]


def test_different_programs_are_noted_with_their_common_time(
    build: Build,
) -> None:
    common = ("aten::add", "add_kernel", 10.0)
    a = build([("aten::mm", "gemm_kernel", 90.0), common])
    b = build([("aten::cumsum", "scan_kernel", 30.0), common])
    (note,) = little_in_common(a, b)
    assert note == (
        "little work in common: only 10 % of A's time and 25 % of B's is in kernels "
        "or ops that both have; the rest is paired by kind or position, or not at all"
    )


def test_a_small_part_of_a_large_program_is_told(build: Build) -> None:
    """All of A is in B, but little of B in A."""
    of_both = ("aten::add", "add_kernel", 10.0)
    only_b = ("aten::cumsum", "scan_kernel", 90.0)
    assert len(little_in_common(build([of_both]), build([of_both, only_b]))) == 1


def test_kernels_of_other_libraries_under_the_same_ops_are_in_common(
    build: Build,
) -> None:
    a = build(
        [
            ("aten::mm", "ampere_sgemm_128x64_tn", 90.0),
            ("aten::cudnn_convolution", CONV_KERNEL, 90.0),
        ]
    )
    b = build(
        [
            ("aten::mm", "Cijk_Alik_Bljk_SB_MT128x64x16", 60.0),
            ("aten::miopen_convolution", "miopenSp3AsmConv_v30_2_3", 60.0),
        ]
    )
    assert little_in_common(a, b) == []
    assert little_in_common(a, a) == []


def test_fused_kernels_that_name_their_ops_are_in_common(build: Build) -> None:
    a = build([("aten::gelu", "gelu_kernel", 30.0), ("aten::mul", "mul_kernel", 30.0)])
    fused = "triton_poi_fused_gelu_mul_0"
    b = build([(f"Torch-Compiled Region: 0/0 / {fused}", fused, 35.0)])
    assert little_in_common(a, b) == []
