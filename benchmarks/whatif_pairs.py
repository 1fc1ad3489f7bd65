"""Writes the table "real pairs" of docs/whatif.md: the same program on another device or with a
change, as a replay of one recording says, and as it was recorded.

    python -P benchmarks/whatif_pairs.py TRACES_FOLDER [--print]
"""

from __future__ import annotations

import sys
from pathlib import Path

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
"""A recording, a change, and the recording with the change, if there is one here."""


def told(found: WhatIf) -> str:
    least, most = found.between_ns or (found.after_ns, found.after_ns)
    if least is None or most is None:
        return "no answer"
    return duration(least) if least == most else f"{duration(least)} to {duration(most)}"


def row(folder: Path, name: str, change: str, twin: str | None) -> str:
    found = whatif(open_trace(str(folder / f"{name}.json.gz")), [change])
    cells = [name, f"`{change}`", duration(found.before_ns), told(found), "not recorded yet", ""]
    if twin is not None:
        # a change that changes nothing measures the step as the replay does
        recorded = whatif(open_trace(str(folder / f"{twin}.json.gz")), ["op:/./ x1"]).before_ns
        least, most = found.between_ns or (found.after_ns or 0, found.after_ns or 0)
        nearest = min(max(recorded, least), most)
        cells[4:] = [duration(recorded), f"{100 * (nearest - recorded) / recorded:+.1f} %"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    folder = Path(sys.argv[1])
    head = "| recording | change | step | told | recorded | error |\n" + "| --- " * 6 + "|"
    rows = [row(folder, *pair) for pair in PAIRS]
    with_twin = sum(twin is not None for *_, twin in PAIRS)
    held = sum("| +0.0 % |" in one for one in rows)
    said = f"What was told holds the recording in {held} of {with_twin} pairs."
    table = "\n".join([head, *rows, "", said])
    print(table)
    if "--print" not in sys.argv:
        put(PAGE, "real pairs", table + "\n", __file__)


if __name__ == "__main__":
    main()
