"""NCCL, RCCL, and the copy engine."""

from tests.gpu.kernel_names.conftest import Says

from fusetui.gpu.kernel_names import decode


def test_nccl_reduction_has_collective_type_algorithm_and_protocol(says: Says) -> None:
    says(
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
        family="nccl",
        op="comm",
        collective="reduce_scatter",
        redop="sum",
        dtype="bf16",
        algo="ring",
        proto="ll",
    )
    says(
        "ncclDevKernel_AllReduce_f32_TREE(ncclDevKernelArgsStorage<4096ul>)",
        redop=None,
        algo="tree",
    )


def test_placeholders_are_ignored(says: Says) -> None:
    says(
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        collective="send_recv",
        redop=None,
        dtype=None,
        algo="ring",
        proto="simple",
    )
    says(
        "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclWorkElem)",
        collective="broadcast",
        dtype=None,
    )


def test_generic_and_symmetric_nccl_kernels_leave_unknown_fields_open(
    says: Says,
) -> None:
    says(
        "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
        op="comm",
        collective=None,
    )
    says(
        "ncclSymkDevKernel_ReduceScatter_LDMC_sum_f8e5m2(ncclSymkDevWorkArgs4K)",
        redop="sum",
        dtype="fp8_e5m2",
        proto=None,
    )
    says(
        "ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs4K)", proto=None, dtype=None
    )


def test_nccl_names_before_2_7_have_algorithm_and_protocol(says: Says) -> None:
    says(
        "ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
        algo="ring",
        proto="ll",
        dtype="fp32",
    )


def test_rccl_kernel_for_all_collectives_has_no_collective(says: Says) -> None:
    for name in (
        "rccl_main_kernel(ncclDevComm*, unsigned long, ncclWork*)",
        "void rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)",
        "mscclKernel_Sum_half_Simple(ncclDevComm*, mscclAlgo*, mscclWork*)",
    ):
        says(name, family="nccl", op="comm", collective=None, short="rccl any")


def test_memcpy_has_direction_and_says_that_the_host_waits(says: Says) -> None:
    found = says(
        "Memcpy HtoD (Pageable -> Device)",
        family="memcpy",
        op="memcpy",
        direction="HtoD",
    )
    assert "host wait" in found.parts[1][2]
    says("Memcpy DtoD (Device -> Device)", direction="DtoD")


def test_memset_is_decoded_without_direction(says: Says) -> None:
    says("Memset (Device)", family="memset", op="memset", direction=None)
    says("Memset (Unknown)", family="memset")


def test_text_after_memcpy_that_is_no_direction_is_not_decoded() -> None:
    assert decode("Memcpy of nothing") is None
