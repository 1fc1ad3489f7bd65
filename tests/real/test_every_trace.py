"""What holds for any trace, of every real one."""

from __future__ import annotations

from tests.analysis.questions.test_effective import (
    test_a_stream_adds_up_to_its_busy_time,
)
from tests.analysis.replay.test_identity import (
    test_replay_without_a_change_equals_every_trace_of_a_file,
)
from tests.analysis.replay.test_worth import (
    test_no_finding_of_a_trace_has_a_negative_gain,
)
from tests.analysis.why.test_account_sums import (
    test_account_of_traces_equals_the_slow_computation,
)
from tests.analysis.why.test_ceiling import (
    test_known_and_unknown_time_below_the_ceiling_add_up,
)
from tests.analysis.why.test_cpu import test_threads_of_a_trace_add_up
from tests.analysis.why.test_reading import (
    test_the_rules_that_are_answered_early_read_nothing,
)
from tests.real.traces import TRACES, each_of, listed

any_trace = each_of([*listed(), *listed(TRACES / "dlrm_ranks")])
