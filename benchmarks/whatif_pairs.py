"""Writes the table "real pairs" of docs/whatif.md: the same program on another device
or with a change, as a replay of one recording says, and as it was recorded.

    python -P benchmarks/whatif_pairs.py TRACES_FOLDER [--print]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put

from fusetui.analysis.replay.whatif import WhatIf, whatif
from fusetui.text.figures import duration
from fusetui.trace import open_trace

PAGE = Path(__file__).resolve().parents[1] / "docs" / "whatif.md"
PAIRS = (
    ("h100_Qwen1.5-0.5B", "device=MI300X", "mi300_Qwen1.5-0.5B"),
    ("mi300_Qwen1.5-0.5B", "device=H100 80GB HBM3", "h100_Qwen1.5-0.5B"),
    ("h100_bert-small", "device=MI300X", "mi300_bert-small"),
    ("mi300_bert-small", "device=H100 80GB HBM3", "h100_bert-small"),
    ("v100_resnet50_2021", "loader", None),
)
"""A recording, a change, and the recording with the change; None where it is not among
the traces of the folder."""


def told(found: WhatIf) -> str:
    """Return the predicted time as text, or as a range if only that is known;
    "inconclusive" without a prediction."""
    least, most = found.between_ns or (found.after_ns, found.after_ns)
    if least is None or most is None:
        return "inconclusive"
    return (
        duration(least) if least == most else f"{duration(least)} to {duration(most)}"
    )


class Pair(NamedTuple):
    """A prediction beside the recording with the change. `recorded_ns`: None if there
    is none."""

    name: str
    change: str
    found: WhatIf
    recorded_ns: int | None

    @property
    def times(self) -> tuple[int, int] | None:
        """The range that was predicted (ns), None if it was inconclusive."""
        number = self.found.after_ns
        return self.found.between_ns or (None if number is None else (number, number))

    @property
    def error(self) -> float | None:
        """From the recording to the nearest end of the range, as a part of the
        recording."""
        if self.recorded_ns is None or self.times is None:
            return None
        nearest = min(max(self.recorded_ns, self.times[0]), self.times[1])
        return (nearest - self.recorded_ns) / self.recorded_ns


def pair(folder: Path, name: str, change: str, twin: str | None) -> Pair:
    """Return the prediction of a change beside the recording with the change. `twin` is
    the name of that recording; None if there is none."""
    found = whatif(open_trace(str(folder / f"{name}.json.gz")), [change])
    recorded = None
    if twin is not None:
        # a change that changes nothing measures the step as the replay does
        recorded = whatif(
            open_trace(str(folder / f"{twin}.json.gz")), ["op:/./ x1"]
        ).before_ns
    return Pair(name, change, found, recorded)


def row(one: Pair) -> str:
    """Return a line of the table for one pair."""
    share, error = one.found.scaled_share, one.error
    cells = [
        one.name,
        f"`{one.change}`",
        "" if share is None else f"{100 * share:.0f} %",
        duration(one.found.before_ns),
        told(one.found),
        "not compared" if one.recorded_ns is None else duration(one.recorded_ns),
        "" if error is None else f"{100 * error:+.1f} %",
    ]
    return f"| {' | '.join(cells)} |"


HEAD = "| recording | change | scaled | step | predicted | recorded | error |"


def main() -> None:
    """Predict all pairs and print the table; unless --print is given, put it into the
    page."""
    folder = Path(sys.argv[1])
    pairs = [pair(folder, *one) for one in PAIRS]
    answered = [one for one in pairs if one.error is not None]
    held = sum(one.error == 0 for one in answered)
    without = sum(one.times is None for one in pairs)
    said = f"The predicted range contained the measured time in {held} of {len(answered)} pairs"
    said += f"; {without} were inconclusive."
    rows = [HEAD, "| --- " * HEAD.count(" | ") + "| --- |", *map(row, pairs), "", said]
    table = "\n".join(rows)
    print(table)

    if "--print" not in sys.argv:
        put(PAGE, "real pairs", table + "\n", __file__)


if __name__ == "__main__":
    main()
