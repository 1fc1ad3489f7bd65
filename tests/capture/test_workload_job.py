"""A workload as a job: its reference and its gradient."""

import pytest

torch = pytest.importorskip("torch", reason="jobs are made of tensors")
workload_job = pytest.importorskip("fusetui.capture.job", reason="needs torch")
pytestmark = pytest.mark.torch


def test_no_gradient_flows_where_a_relu_is_undecided() -> None:
    result = torch.tensor([0.0, 0.029, -0.029, 0.031, 1.0])
    gradient = workload_job.gradient_for(result, torch.bfloat16)
    assert (gradient != 0).tolist() == [False, False, False, True, True]


def test_a_gradient_has_values_of_the_dtype() -> None:
    gradient = workload_job.gradient_for(torch.ones(100), torch.bfloat16)
    assert torch.equal(gradient, gradient.bfloat16().float())


def test_a_gpu_whose_tensor_cores_triton_does_not_use_runs_no_triton_gemm() -> None:
    from fusetui import kernels
    from fusetui.capture.provenance import CaptureDevice

    variants = kernels.get("mlp").variants
    turing, ampere, amd = (
        CaptureDevice("cuda", "a GPU", 0, c) for c in ((7, 5), (8, 0), None)
    )
    refused = workload_job.why_unable(variants["fused-gemm"], turing)
    assert refused.startswith("it needs compute capability 8.0, but this GPU has 7.5, ")
    assert workload_job.why_unable(variants["fused"], turing) is None
    assert workload_job.why_unable(variants["fused-gemm"], ampere) is None
    assert workload_job.why_unable(variants["fused-gemm"], amd) is None


def test_shapes_are_shrunk_only_by_the_cpus_defaults() -> None:
    from fusetui import kernels

    mlp = kernels.get("mlp")
    assert workload_job.is_shrunk(mlp, mlp.cpu_shapes)
    assert not workload_job.is_shrunk(mlp, mlp.gpu_shapes)
    assert not workload_job.is_shrunk(mlp, dict.fromkeys(mlp.gpu_shapes, 3))
