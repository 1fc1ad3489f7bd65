"""Plants changes into traces and says what the diff finds, as a Markdown table.

    python -P benchmarks/diff_planted.py a.json.gz b.json.gz [--targets 2] [--into docs/diff.md]

Each change is planted alone: into one step, into all steps, and into all steps at the kernel that
lies deepest in the program. Right is a diff that has the row of this change with its figure, and no
other row. `tests/trace/diff/plants.py` has the changes.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put
from tests.trace.diff.blocks import doubled, in_all_steps, without
from tests.trace.diff.planting import DECODE, PLACES, Answer, Planted, Subject, judge, judge_block
from tests.trace.diff.plants import PLANTS

BLOCKS = {"a layer removed": (without, -1), "a layer doubled": (doubled, 1)}


def main() -> int:
    options = _options()
    results: defaultdict[tuple[str, str], list[Answer]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for path in options.traces:
            _try(Path(path), Path(folder, "planted.json"), options.targets, results)
    text = table(results)
    sys.stdout.write(text)
    if options.into:
        put(Path(options.into), "planted", text)
    return 0 if all(answer.right for found in results.values() for answer in found) else 1


def _try(
    path: Path, into: Path, targets: int, results: dict[tuple[str, str], list[Answer]]
) -> None:
    _try_layers(path, into, results)
    subject = Subject.read(path)
    if subject is None:
        sys.stderr.write(f"{path.name}: no kernel has a launch in the file\n")
        return
    for name, plant in PLANTS.items():
        for place in PLACES:
            for number in range(targets):
                planted: Planted | None = plant(subject, place, number)
                if planted is None:
                    continue
                answer = judge(subject, planted, into)
                results[name, place].append(answer)
                if not answer.right:
                    said = f"{path.name}: {name}, {place}, {number}: {answer.said}\n"
                    sys.stderr.write(said)


def _try_layers(path: Path, into: Path, results: dict[tuple[str, str], list[Answer]]) -> None:
    """The first block that repeats, one in the middle, and the last but one."""
    raw = path.read_bytes()
    document = DECODE.decode(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    document = {"traceEvents": document} if isinstance(document, list) else document
    found = in_all_steps(document["traceEvents"])
    if not found:
        return
    for name, (change, sign) in BLOCKS.items():
        for nth in sorted({0, found[0].times // 2, found[0].times - 2}):
            cut = change(document["traceEvents"], found, nth)
            if cut is not None:
                answer = judge_block(path, document, cut, sign, into)
                results[name, PLACES[1]].append(answer)
                if not answer.right:
                    sys.stderr.write(f"{path.name}: {name} {nth}: {answer.said}\n")


def table(results: dict[tuple[str, str], list[Answer]]) -> str:
    lines = [f"| planted | {' | '.join(PLACES)} |", "|---|" + "---:|" * len(PLACES)]
    for name in (*PLANTS, *BLOCKS):
        cells = []
        for place in PLACES:
            found = results.get((name, place), [])
            right = sum(answer.right for answer in found)
            cells.append(f"{right} of {len(found)}" if found else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _options(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--targets", type=int, default=1, help="kernels tried for each change")
    parser.add_argument("--into", metavar="FILE", help="a page with a place for the table")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
