"""How far the sum of a diff closes, pair by pair, as a Markdown table.

    python -P benchmarks/diff_sums.py a.json.gz b.json.gz [c.json.gz d.json.gz ...] [--into FILE]

Not explained should be at most 1 % of the change plus 1 % of the step. "By op" is the share of all
changes of rows that is in rows of one op or of one group of kernels (the same kernel on both sides,
or products of one layout); the rest is in rows of a sort of work in one place.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from fusetui.trace import open_trace
from fusetui.trace.diff import Diff, Kind, Row, diff
from fusetui.trace.kernel_names import decode
from fusetui.trace.kernel_names.model import KernelName
from fusetui.trace.text.figures import duration, percent

BEGIN, END = "<!-- table: sums -->", "<!-- end -->"
HEAD = (
    "pair",
    "step",
    "change",
    "rows",
    "by op",
    "idle",
    "overlap",
    "borders",
    "odd steps",
    "not explained",
    "met",
)


def main() -> int:
    options = _options()
    lines = [f"| {' | '.join(HEAD)} |", "|---|" + "---:|" * (len(HEAD) - 1)]
    met = []
    for a, b in zip(options.traces[::2], options.traces[1::2], strict=True):
        found = diff(open_trace(a), open_trace(b))
        met.append(_is_met(found))
        lines.append(f"| {' | '.join(_columns(found))} |")
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    if options.into:
        page = Path(options.into)
        pattern = re.compile(re.escape(BEGIN) + r".*?" + re.escape(END), re.DOTALL)
        page.write_text(pattern.sub(lambda _: f"{BEGIN}\n{text}{END}", page.read_text(), count=1))
    return 0 if all(met) else 1


def _columns(found: Diff) -> list[str]:
    sums, step = found.accounting, found.step
    beside = sums.earlier_ns + sums.later_ns
    parts = sums.step_ns, sums.rows_ns
    others = sums.idle_ns, sums.overlap_ns, beside, sums.odd_ns, sums.not_explained_ns
    return [
        f"{found.a} -> {found.b}",
        f"{duration(step.a_ns or 0)} -> {duration(step.b_ns or 0)}",
        *map(_signed, parts),
        _by_op(found),
        *map(_signed, others),
        "yes" if _is_met(found) else "no",
    ]


def _by_op(found: Diff) -> str:
    counted = [row for row in found.rows if row.counts]
    whole = sum(abs(row.change_ns) for row in counted)
    return percent(sum(abs(row.change_ns) for row in counted if _is_one(row)), whole or 1)


def _is_one(row: Row) -> bool:
    """Is it a row of one op, of one kernel, or of products of one layout."""
    names = {decode(name) for name in (*row.a, *row.b)} if row.together else set()
    alike = {(known.op, known.layout) if known else None for known in names}
    return row.kind is not Kind.REPLACED or not names or (len(alike) == 1 and _has_layout(names))


def _has_layout(names: set[KernelName | None]) -> bool:
    return all(known is not None and known.layout for known in names)


def _is_met(found: Diff) -> bool:
    step = max(found.step.a_ns or 0, found.step.b_ns or 0)
    return 100 * abs(found.accounting.not_explained_ns) <= abs(found.accounting.step_ns) + step


def _signed(ns: int) -> str:
    return f"{'-' if ns < 0 else '+'}{duration(abs(ns))}" if ns else "0"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="two for each pair")
    parser.add_argument("--into", metavar="FILE", help="a page with a place for the table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
