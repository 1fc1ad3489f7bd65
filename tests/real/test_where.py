"""Queries of the tables of real traces: they find what the search of the app finds."""

from __future__ import annotations

from tests.real.traces import each_named
from tests.tables.test_where import test_slices_are_those_of_the_search

any_trace = each_named("h100_bert-small", "nccl_collectives", "mi300_vllm_decode_graph")
