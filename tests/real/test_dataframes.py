"""Dataframes of real traces, small and large, also without a GPU."""

from __future__ import annotations

from tests.cli.conftest import fusetui
from tests.cli.test_dataframes import (
    test_every_value_of_a_table_arrives_in_every_dataframe,
    test_slices_add_up_to_the_summary,
    test_sums_of_every_dataframe_are_those_of_json,
    trace,
    types_are_the_same,
)
from tests.real.traces import each_named, real

NAMES = (
    "h100_bert-small",
    "mi300_ddp_resnet18",
    "cpu_only_small",
    "nccl_collectives",
    "v100_resnet50_2021",
)
any_trace = each_named(*NAMES)


def test_types_are_the_same_for_every_trace() -> None:
    types_are_the_same([real(name) for name in NAMES])
