"""Keys of the documents about small real traces."""

from __future__ import annotations

from tests.cli.conftest import fusetui
from tests.docs.test_json import test_keys_of_traces_are_documented
from tests.real.traces import each_of, listed

any_trace = each_of(listed(below_bytes=1 << 18))
