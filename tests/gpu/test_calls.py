"""What a call into a GPU's runtime is for."""

import pytest

from fusetui.gpu.calls import OCCUPANCY, meaning_of_call


@pytest.mark.parametrize(
    "name",
    [
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
        "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
        "cuOccupancyMaxPotentialBlockSize",
        "hipOccupancyMaxActiveBlocksPerMultiprocessor",
        "hipModuleOccupancyMaxPotentialBlockSize",
    ],
)
def test_an_occupancy_query_is_known(name: str) -> None:
    assert meaning_of_call(name) == OCCUPANCY


@pytest.mark.parametrize(
    "name", ["cudaLaunchKernel", "Occupancy", "", "myOccupancyMaxActiveBlocks"]
)
def test_a_call_that_is_no_occupancy_query_has_no_meaning_to_tell(name: str) -> None:
    assert meaning_of_call(name) == ""
