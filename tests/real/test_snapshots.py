"""Memory snapshots that torch wrote."""

from __future__ import annotations

from tests.real.traces import SNAPSHOTS, each_of, listed
from tests.trace.snapshot.test_against_pickle import (
    test_annotations_and_settings_of_snapshots_equal_pickle,
    test_blocks_of_snapshots_equal_pickle,
    test_equal_stacks_are_one,
    test_events_of_snapshots_equal_pickle,
    test_segments_of_snapshots_equal_pickle,
)

any_snapshot = each_of(listed(SNAPSHOTS, "*.pickle"))
