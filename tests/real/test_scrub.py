"""Real traces without what was private in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.real.traces import TRACES, each_of, listed, short
from tests.trace.scrub.test_corpus import (
    secrets_in,
    test_scrubbed_trace_has_the_same_figures_and_no_secret,
)

from fusetui.trace import open_trace
from fusetui.trace.read.source import open_source
from fusetui.trace.scrub.detect import secrets_of

MAX_SCRUBBED_BYTES = 100_000
MAX_PACKED_BYTES = 1_000_000  # of a file all of whose texts are looked at

any_trace = each_of(
    [
        *listed(below_bytes=MAX_SCRUBBED_BYTES),
        *listed(TRACES / "dlrm_ranks", below_bytes=MAX_SCRUBBED_BYTES),
    ]
)


@pytest.mark.parametrize("path", listed(), ids=short)
def test_only_hf_token_is_warned_of(path: Path) -> None:
    """Some of these traces have the variable, with a token that was made unreadable."""
    assert set(secrets_of(open_trace(str(path)))) <= {"HF_TOKEN"}


def test_no_string_of_a_real_trace_is_taken_for_a_secret() -> None:
    """Names of packages, too. Of larger files, the names of events are looked at
    above."""
    secrets = set()
    for path in listed(pattern="**/*.json.gz", below_bytes=MAX_PACKED_BYTES):
        secrets |= secrets_in(bytes(open_source(str(path)).document[:]))
    assert secrets == set()
