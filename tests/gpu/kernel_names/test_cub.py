"""CUB and rocPRIM."""

import pytest
from tests.gpu.kernel_names.conftest import Says


@pytest.mark.parametrize(
    ("name", "op"),
    [
        (
            "void cub::DeviceRadixSortOnesweepKernel<cub::Policy<long>::Policy800, false>(int)",
            "sort",
        ),
        ("void at_cuda_detail::cub::DeviceScanKernel<cub::AgentScanPolicy<128> >(int)", "scan"),
        ("void cub::DeviceReduceByKeyKernel<int>(int)", "reduction"),
        ("void cub::DeviceCompactInitKernel<int>(int)", None),
        (
            "void rocprim::ROCPRIM_400400_NS::detail::trampoline_kernel<r"
            "ocprim::ROCPRIM_400400_NS::"
            "default_config, rocprim::ROCPRIM_400400_NS::detail::reduce_c"
            "onfig_selector<bool> >(int)",
            "reduction",
        ),
        (
            "void rocprim::N::detail::trampoline_kernel<rocprim::N::detai"
            "l::wrapped_scan_config<int> >"
            "(int)",
            "scan",
        ),
        (
            "void rocprim::N::detail::trampoline_kernel<rocprim::N::default_config, "
            "rocprim::N::detail::partition_config_selector<long> >(int)",
            None,
        ),
    ],
)
def test_operation(says: Says, name: str, op: str) -> None:
    says(name, family="cub", op=op)
