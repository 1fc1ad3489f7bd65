"""What kind of work kernels and copies are, by their names."""

from __future__ import annotations

import pytest

from fusetui.gpu import kinds as of_names
from fusetui.gpu.kinds import is_between_devices, is_collective, kind_of_kernel, kinds
from fusetui.trace.model.categories import Role
from fusetui.tui.layout.kinds import SliceKind, classify_slice

COLLECTIVES = [
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs4K)",
    "rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)",
    "void vllm::cross_device_reduce_1stage<__hip_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
    "void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>()",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8>(AllReduceParams)",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>()",
    "void deep_ep::intranode::dispatch<4, 768>(int4*, float*, int*)",
    "void deep_ep::internode_ll::combine<7, 3>(void*, void*)",
    "void dpsk::ep::internode::notify_dispatch<false, 8>(int const*, int*)",
    "void aiter::allreduce_fusion_kernel_rmsnorm<__hip_bfloat16, 8>(int)",
    "nvshmemi_proxy_quiet_kernel()",
    "void nvshmemx_barrier_all_on_stream_kernel(int)",
    "oneccl_allreduce_small",
    "void ccl::v1::reduce_scatter_kernel<float>(float*)",
    "void mscclpp::allreduce7<float>(float*)",
    "kuserbuffers_pushsend",
    "reduce_scatter_cross_device_store",
]
OTHERS = [
    "triton_poi_fused_add_all_reduce_wait_tensor_2",
    "triton_red_fused_all_gather_into_tensor_1",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8>()",
    "small_gather_kernel",
    "cutlass_gemm_all_reduce_kernel",
    "void at::native::reduce_kernel<512, 1>()",
    "void cub::DeviceReduceByKeyKernel<int>()",
    "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*, int*)",
    "vocl::kernel",
    "",
]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_names_of_collectives_are_recognized(name: str) -> None:
    assert is_collective(name)


@pytest.mark.parametrize("name", OTHERS)
def test_names_that_only_look_like_collectives_are_not_taken_for_them(
    name: str,
) -> None:
    assert not is_collective(name)


@pytest.mark.parametrize("name", [*COLLECTIVES, *OTHERS])
def test_every_definition_of_communication_agrees(name: str) -> None:
    """What is counted, and the color in the app."""
    assert ("comm" in kinds(name)) == is_collective(name)
    assert (classify_slice(Role.KERNEL, name) is SliceKind.COMM) == is_collective(name)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("flash_fwd_hdim64_bf16_sm80<Flash_fwd_kernel_traits<64, 128> >", "attention"),
        ("rotary_fwd_kv_kernel.kd", "rope"),
        ("triton_poi_fused_layer_norm_0", "elementwise"),
        ("triton_red_fused_layer_norm_0", "reduction"),
        ("ampere_sgemm_128x64_tn", "gemm"),
        ("frobnicate", None),
    ],
)
def test_words_count_where_no_decoder_knows_the_work(
    name: str, kind: str | None
) -> None:
    assert kind_of_kernel(name) == kind


def test_only_peer_copies_are_between_devices() -> None:
    assert is_between_devices("Memcpy PtoP (Device -> Device)")
    assert is_between_devices("CopyPeerToPeer")
    assert not is_between_devices("Memcpy DtoD (Device -> Device)")


@pytest.mark.parametrize(
    "remembered",
    ["is_collective", "is_between_devices", "kind_of_kernel", "kind_of_op", "kinds_of"],
)
def test_no_more_names_are_remembered_than_memory_has_room_for(remembered: str) -> None:
    """A trace may have a million names, and a server reads many traces."""
    assert (
        getattr(of_names, remembered).cache_parameters()["maxsize"]
        == of_names.MAX_NAMES_KEPT
    )
