"""Everything that fusetui derives about a job before it judges the ranks."""

from __future__ import annotations

import msgspec

from fusetui.analysis.ranks.blame import ChargedWaits
from fusetui.analysis.ranks.caused import CausedWaits
from fusetui.analysis.ranks.clocks import Clocks
from fusetui.analysis.ranks.ideal import ReplayableSteps
from fusetui.analysis.ranks.matching import Matched, RankJob, StepsOfRows
from fusetui.analysis.ranks.pipeline import Pipeline
from fusetui.analysis.ranks.waits import SumsOfRanks, Waits


class JobFacts(msgspec.Struct, frozen=True, eq=False):
    """What the summaries of a job show."""

    job: RankJob
    matched: Matched
    clocks: Clocks
    waits: Waits
    steps: StepsOfRows
    sums: SumsOfRanks
    charged: ChargedWaits
    caused: CausedWaits
    pipeline: Pipeline | None  # None where ranks do not send to each other
    replay: ReplayableSteps
