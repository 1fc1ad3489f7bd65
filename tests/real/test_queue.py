"""The launch queue of real traces, also with a graph."""

from __future__ import annotations

from tests.analysis.questions.test_queue import test_as_counted_at_each_time
from tests.real.traces import each_named

any_trace = each_named("h100_bert-small", "mi300_vllm_decode_graph", "mi250_minitoy")
