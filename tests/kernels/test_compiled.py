"""Our Triton kernels as compiled for GPUs that are not there: the bounds of
docs/experiments.md, at the sizes of the workloads. benchmarks/triton_code.py does the
same for more GPUs."""

from collections.abc import Mapping, Sequence

import pytest

from fusetui import kernels

torch = pytest.importorskip("torch", reason="the kernels take tensors")
pytest.importorskip("triton", reason="needs triton: pip install 'fusetui[triton]'")
launches = pytest.importorskip("tests.kernels.launches")
machine_code = pytest.importorskip("tests.kernels.machine_code")
tiles = pytest.importorskip("fusetui.kernels.tiles")
pytestmark = pytest.mark.torch

ARCHITECTURES = ("sm_80", "sm_90")
CASES: Sequence[tuple[str, str, Mapping[str, int]]] = (
    ("mlp", "fused", {}),
    ("mlp", "fused-gemm", {}),
    ("mlp", "fused-gemm", {"dim": 760, "hidden": 3001}),
    ("partitioned-linear", "fused", {}),
    ("partitioned-linear", "fused", {"in_features": 253, "out_features": 8}),
    ("partitioned-linear", "fused", {"in_features": 8, "batch": 65}),
)


@pytest.mark.parametrize(
    ("workload", "variant", "sizes", "architecture"),
    [(*case, one) for case in CASES for one in ARCHITECTURES[: 1 if case[2] else 2]],
)  # odd sizes on one of them
def test_the_code_is_within_its_bounds(
    workload: str, variant: str, sizes: Mapping[str, int], architecture: str
) -> None:
    found = kernels.get(workload)
    shapes = {**found.gpu_shapes, **sizes}
    made = launches.launches(
        found, found.variants[variant], shapes, torch.bfloat16, architecture
    )
    assert made
    for launch in made:
        code = machine_code.compiled(launch, architecture)
        assert machine_code.violations(launch, code, architecture, "bf16") == []


@pytest.mark.parametrize(
    ("architecture", "instruction"), [("sm_80", "HMMA"), ("sm_90", "HGMMA")]
)
def test_the_large_tile_uses_the_tensor_cores_and_the_memory_that_the_table_says(
    architecture: str, instruction: str
) -> None:
    mlp = kernels.get("mlp")
    launch, _ = launches.launches(
        mlp, mlp.variants["fused-gemm"], mlp.gpu_shapes, torch.bfloat16, architecture
    )
    code = machine_code.compiled(launch, architecture)
    assert {opcode.partition(".")[0] for opcode in code.matrix} == {instruction}
    assert tiles.TABLES.geglu[architecture]["bf16"].shared == code.shared


def test_a_gemm_for_amd_exchanges_its_sums_to_write_16_bytes_a_thread() -> None:
    layers = kernels.get("partitioned-linear")
    launch, *_ = launches.launches(
        layers, layers.variants["fused"], layers.gpu_shapes, torch.bfloat16, "gfx942"
    )
    code = machine_code.compiled(launch, "gfx942")
    assert code.matrix
    assert set(code.stores) == {128}


def test_every_tile_fits_its_device() -> None:
    for table in (tiles.TABLES.geglu, tiles.TABLES.grouped):
        for architecture, found in table.items():
            assert {"bf16", "fp16", "fp32", "tf32"} == set(found)
            assert all(
                0 < tile.shared <= machine_code.SHARED[architecture]
                for tile in found.values()
            )


@pytest.mark.parametrize(
    ("gpu", "tile_of"),
    [
        ("sm_80", "sm_80"),
        ("sm_87", "sm_86"),
        ("sm_103", "sm_100"),
        ("sm_75", "sm_80"),
        ("gfx942", "gfx942"),
        ("gfx90a", "gfx942"),
    ],
)
def test_a_gpu_that_is_not_in_the_table_has_the_tiles_of_the_one_before(
    gpu: str, tile_of: str
) -> None:
    assert tiles.nearest(tiles.TABLES.geglu, gpu) == tile_of


def test_a_spill_is_seen() -> None:
    """The bounds can be violated: two sums of 128 x 128 do not fit into the registers
    of sm_80."""
    mlp = kernels.get("mlp")
    too_large = {"sm_80": {"bf16": tiles.Tile(128, 128, 64, 8, 3, 0)}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles.TABLES, "geglu", too_large)
        launch, _ = launches.launches(
            mlp, mlp.variants["fused-gemm"], mlp.gpu_shapes, torch.bfloat16, "sm_80"
        )
    code = machine_code.compiled(launch, "sm_80")
    assert machine_code.violations(launch, code, "sm_80", "bf16") == [
        f"{code.stack} B spilled"
    ]
