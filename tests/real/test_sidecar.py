"""Real documents that are read once."""

from __future__ import annotations

from tests.real.traces import each_named
from tests.trace.cache.test_sidecar import no_text, test_why_reads_a_document_once

any_trace = each_named("h100_bert-small", "dlrm_ranks/rank0")
