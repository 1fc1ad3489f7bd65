"""What HTA says of the changes that diff_planted.py plants, beside what fusetui says.

    python -P benchmarks/diff_planted_hta.py a.json.gz ... --hta PYTHON [--into
    docs/diff.md]

`--hta` names a Python that has HolisticTraceAnalysis. Each change is planted alone into
all steps. HTA compares the first step of both by the names of GPU events: it tells a
change where a count differs or the time differs by a microsecond or more, which is what
it rounds to. It is right where it names all events that were changed and no other. Idle
time, an order or a number is no name, so there it is right if it is silent, and silent
of idle time is a miss.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put
from tests.analysis.diff.planting import GPU, PLACES, Event, Subject, judge
from tests.analysis.diff.plants import PLANTS

PLACE = PLACES[1]

WORKER = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from hta.common.trace import Trace
from hta.trace_diff import DeviceType, LabeledTrace, TraceDiff
out, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    try:
        a, b = (LabeledTrace(label=label, t=Trace(trace_files={0: path}))
                for label, path in zip("AB", json.loads(line)))
        found = TraceDiff.compare_traces(a, b, device_type=DeviceType.GPU)
        told = found[(found["diff_counts"] != 0) | (found["diff_duration"].abs() >= 1)]
        said = {"names": sorted(map(str, told.index)), "events": int(found["A_counts"].sum())}
    except Exception as error:
        said = {"error": f"{type(error).__name__}: {error}"}
    out.write(json.dumps(said) + chr(10))
    out.flush()
"""


def main() -> int:
    """Plant all changes into all traces, ask both tools, and print the table. Returns
    0."""
    options = _options()
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    with (
        subprocess.Popen(
            [options.hta, "-P", "-c", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as hta,
        tempfile.TemporaryDirectory() as folder,
    ):
        for path in options.traces:
            _try(Path(path), Path(folder, "planted.json"), hta, found)
        if hta.stdin:
            hta.stdin.close()

    text = _table(found)
    sys.stdout.write(text)

    if options.into:
        put(Path(options.into), "planted hta", text, __file__)

    return 0


def _try(
    path: Path, into: Path, hta: subprocess.Popen[str], found: dict[str, Counter[str]]
) -> None:
    """Plant each change into all steps of a trace, ask fusetui and HTA, and count their
    answers in `found`."""
    subject = Subject.read(path)
    if subject is None:
        return

    before = _names(subject.document["traceEvents"])
    for name, plant in PLANTS.items():
        planted = plant(subject, PLACE, 0)
        if planted is None:
            continue
        ours = judge(subject, planted, into)
        said = _ask(hta, path, into)
        wanted = _changed(before, _names(planted.events))
        if name == "a kernel x 1.3":
            wanted = {_slower(subject, planted.events)}
        found[name]["tried"] += 1
        found[name]["fusetui"] += ours.right
        found[name][_judged(said, wanted, name == "idle time")] += 1


def _ask(hta: subprocess.Popen[str], a: Path, b: Path) -> dict[str, Any]:
    """Return what HTA says of two traces: the names that differ and the number of
    events, or its error."""
    assert hta.stdin
    assert hta.stdout
    hta.stdin.write(json.dumps([str(a), str(b)]) + "\n")
    hta.stdin.flush()
    said: dict[str, Any] = json.loads(hta.stdout.readline())
    return said


def _judged(said: dict[str, Any], wanted: set[str], idle: bool) -> str:
    """Return a verdict on what HTA says, given the names that really changed. `idle` is
    whether idle time was changed, which has no name."""
    if "error" in said:
        return "stopped"
    if not said["events"]:
        return "no GPU events"

    told = set(said["names"])
    if not told:
        return "silent" if wanted or idle else "right"
    if idle:
        return "other names"

    return (
        "right"
        if told == wanted
        else "with others"
        if wanted <= told
        else "other names"
    )


def _names(events: list[Event]) -> Counter[str]:
    """Return how often each name of a GPU event occurs."""
    return Counter(str(e["name"]) for e in events if _on_gpu(e))


def _on_gpu(event: Event) -> bool:
    """Return whether an event is work on a GPU; annotations on a GPU are not."""
    return (
        event.get("ph") == "X"
        and event.get("cat") in GPU
        and "annot" not in str(event["cat"])
    )


def _changed(before: Counter[str], after: Counter[str]) -> set[str]:
    """Return the names that do not occur equally often before and after."""
    return {
        name for name in before.keys() | after.keys() if before[name] != after[name]
    }


def _slower(subject: Subject, events: list[Event]) -> str:
    """Return the name of the one GPU event whose time was changed."""
    old = subject.document["traceEvents"]
    return next(
        str(new["name"])
        for one, new in zip(old, events, strict=False)
        if _on_gpu(new) and one.get("dur") != new.get("dur")
    )


def _table(found: dict[str, Counter[str]]) -> str:
    """Return the Markdown table of how often each tool was right."""
    lines = [
        "| planted in all steps | fusetui | HTA: right | HTA: else |",
        "|---|---:|---:|---|",
    ]
    for name, counts in found.items():
        tried = counts["tried"]
        others = [
            f"{kind} {counts[kind]}"
            for kind in (
                "silent",
                "with others",
                "other names",
                "no GPU events",
                "stopped",
            )
            if counts[kind]
        ]
        cells = [f"{counts['fusetui']} of {tried}", f"{counts['right']} of {tried}"]
        lines.append(f"| {name} | {' | '.join(cells)} | {', '.join(others)} |")

    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0] if __doc__ else ""
    )
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument(
        "--hta", required=True, help="a Python that has HolisticTraceAnalysis"
    )
    parser.add_argument(
        "--into", metavar="FILE", help="a page with a place for the table"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
