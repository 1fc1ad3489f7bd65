"""The rows of the modules page: figures in one unit a column, and their shares as bars."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from fusetui.text.figures import Unit, count, duration, percent, unit_of
from fusetui.trace.program.origin import Nowhere
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.bars import share_bar
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.rows import Styled
from fusetui.tui.layout.columns import NEVER, Column, fit, shown
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.modules import ModuleTree

BAR = 10  # cells
TIMES = ("GPU", "self", "CPU")
BELONGS_NOWHERE: Final = {
    Nowhere.NOT_LAUNCHED: "(launch not recorded)",
    Nowhere.NO_FORWARD: "(backward, of no recorded forward op)",
    Nowhere.OUTSIDE: "(in no module or annotation)",
}
WHOLES: Final = {
    "GPU": "of GPU time",
    "CPU": "on the CPU",
    "kernels": "kernels",
    "calls": "calls",
}


class ModuleTable(msgspec.Struct, frozen=True, eq=False):
    """What the rows of the tree need; the column by which they are sorted has a star."""

    tree: ModuleTree
    measure: str
    whole: int
    units: dict[str, Unit]
    columns: Sequence[Column]

    def row(self, node: int, mark: str, glyphs: Glyphs, width: int) -> list[Styled]:
        """One line; the share is that of the measure."""
        tree = self.tree
        is_none = node >= len(tree.times)
        found = {name: int(values[node]) for name, values in tree.figures.items()}
        if is_none:
            name = f"{mark} {BELONGS_NOWHERE[tree.none[node - len(tree.times)].why]}"
        else:
            time = tree.times[node]
            name = f"{'  ' * time.level}{mark} {narrow(time.module)}"
        share = found[self.measure]
        texts = [
            self._time("GPU", found),
            percent(share, self.whole) if share else "",
            share_bar(share, self.whole, BAR, glyphs),
            "" if is_none else self._time("self", found),
            count(found["kernels"]) if found["kernels"] else "",
            count(found["calls"]) if found["calls"] else "",
            self._time("CPU", found),
            name,
        ]
        look = palette.DIM if is_none else palette.PLAIN
        return [
            (text, look if self.columns[n].title else palette.BUSY)
            for n, text in zip(
                shown(self.columns, width), fit(self.columns, texts, width), strict=True
            )
        ]

    def _time(self, name: str, found: dict[str, int]) -> str:
        return self.units[name].text(found[name]) if found[name] else ""


@lru_cache(maxsize=4)
def module_table(tree: ModuleTree, sort: str) -> ModuleTable:
    """Made again only for another tree or order."""
    by, measure = sort or tree.measure(), tree.measure(sort)
    units = {name: unit_of([int(tree.figures[name].max(initial=0))]) for name in TIMES}

    def column(name: str, width: int, from_width: int = 0) -> Column:
        text = f"{name} {units[name].name}" if name in units else name
        return Column(f"{text}*" if name == by else text, width, from_width=from_width)

    on_gpu = 0 if tree.gpu_ns else NEVER
    columns = (
        column("GPU", 9, on_gpu),
        Column("share", 6),
        Column("", BAR, left=True, from_width=70),
        column("self", 9),
        column("kernels", 8, on_gpu),
        column("calls", 6, 90 if tree.gpu_ns else 0),
        column("CPU", 9, 100 if tree.gpu_ns else 0),
        Column("module*" if by == "name" else "module", 0, left=True),
    )
    return ModuleTable(tree, measure, tree.whole(measure), units, columns)


def heading(tree: ModuleTree, measure: str) -> str:
    """What the shares are of."""
    whole = tree.whole(measure)
    text = count(whole) if measure in ("kernels", "calls") else duration(whole)
    of_self = f"of self time on the {'GPU' if tree.gpu_ns else 'CPU'}"
    return f"modules and annotations   share of the {text} {WHOLES.get(measure, of_self)}"
