"""How far the sum of a diff closes, pair by pair, as a Markdown table.

    python -P benchmarks/diff_sums.py a.json.gz b.json.gz [c.json.gz d.json.gz ...]
    [--into FILE]

Not explained should be at most 1 % of the change plus 1 % of the step. "By op" is the
share of all changes of rows that is in rows of one op or of the same kernel on both
sides; "by group" has also rows of as many products of one layout. The rest is in rows
of a sort of work in one place.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff, Row, RowKind
from fusetui.gpu.kernel_names import decode
from fusetui.text.figures import duration, percent
from fusetui.trace import open_trace

HEAD = (
    "pair",
    "step",
    "change",
    "rows",
    "by op",
    "by group",
    "idle",
    "overlap",
    "borders",
    "odd steps",
    "not explained",
    "met",
)


def main() -> int:
    """Print a table of how far the sum of each diff closes. Returns 1 if any pair
    misses the bound."""
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
        put(Path(options.into), "sums", text, __file__)

    return 0 if all(met) else 1


def _columns(found: Diff) -> list[str]:
    """Return the cells of a diff: its step, the terms of its sum, and whether the bound
    is met."""
    sums, step = found.accounting, found.step
    beside = sums.earlier_ns + sums.later_ns
    parts = sums.step_ns, sums.rows_ns
    others = sums.idle_ns, sums.overlap_ns, beside, sums.odd_ns, sums.not_explained_ns

    return [
        f"{found.a} -> {found.b}",
        f"{duration(step.a_ns or 0)} -> {duration(step.b_ns or 0)}",
        *map(_signed, parts),
        _share(found, _is_op),
        _share(found, lambda row: _is_op(row) or _is_layout(row)),
        *map(_signed, others),
        "yes" if _is_met(found) else "no",
    ]


def _share(found: Diff, of: Callable[[Row], bool]) -> str:
    """Return the share of all changes that is in rows for which `of` is true."""
    counted = [row for row in found.rows if row.counts]
    whole = sum(abs(row.change_ns) for row in counted)
    return percent(sum(abs(row.change_ns) for row in counted if of(row)), whole or 1)


def _is_op(row: Row) -> bool:
    """Return whether a row is about one op, or about the same kernel on both sides."""
    return not row.together or row.kind is not RowKind.REPLACED


def _is_layout(row: Row) -> bool:
    """Return whether all kernels of a row are matrix products of one layout."""
    known = [decode(name) for name in {*row.a, *row.b}]
    layouts = {(one.op, one.layout) if one else None for one in known}
    return len(layouts) == 1 and all(one is not None and one.layout for one in known)


def _is_met(found: Diff) -> bool:
    """Return whether what is not explained is at most 1 % of the change plus 1 % of the
    step."""
    step = max(found.step.a_ns or 0, found.step.b_ns or 0)
    return (
        100 * abs(found.accounting.not_explained_ns)
        <= abs(found.accounting.step_ns) + step
    )


def _signed(ns: int) -> str:
    return f"{'-' if ns < 0 else '+'}{duration(abs(ns))}" if ns else "0"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0] if __doc__ else ""
    )
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="two for each pair")
    parser.add_argument(
        "--into", metavar="FILE", help="a page with a place for the table"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
