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
def test_other_calls_say_it_themselves(name: str) -> None:
    assert meaning_of_call(name) == ""
