"""The modules page: the time of the modules and annotations of the program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.text.figures import Unit, count, duration, percent, plural, unit_of
from fusetui.trace.model.arrays import Flags
from fusetui.trace.program.modules import ModuleTime
from fusetui.trace.program.origin import Nowhere
from fusetui.tui.drawing.details import flow
from fusetui.tui.drawing.glyphs import Glyphs, glyphs_for, share_bar
from fusetui.tui.drawing.picture import Rows, Said, TextPicture, no_rows, row_parts, ruled, text
from fusetui.tui.drawing.schemes import Styled
from fusetui.tui.layout.answer import working
from fusetui.tui.layout.figure_trees import Preorder
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.modules import SORTS, ModuleTree, first_open
from fusetui.tui.layout.text_layout import NEVER, ListColumn
from fusetui.tui.pages.folding import TreeListPage
from fusetui.tui.pages.page import Pane, sort_actions
from fusetui.tui.state import search
from fusetui.tui.state.action import Run, action, on
from fusetui.tui.state.copying import names_text
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import Size, State, told

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
    columns: Sequence[ListColumn]

    def row(self, node: int, mark: str, glyphs: Glyphs, width: int) -> list[Styled]:
        """One line; the share is that of the measure."""
        tree, is_none = self.tree, node >= len(self.tree.times)
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
        return row_parts(self.columns, texts, width, "faint" if is_none else "plain")

    def _time(self, name: str, found: dict[str, int]) -> str:
        return self.units[name].text(found[name]) if found[name] else ""


@lru_cache(maxsize=4)
def module_table(tree: ModuleTree, sort: str) -> ModuleTable:
    """Made again only for another tree or order."""
    by, measure = sort or tree.measure(), tree.measure(sort)
    units = {name: unit_of([int(tree.figures[name].max(initial=0))]) for name in TIMES}

    def column(name: str, width: int, from_width: int = 0) -> ListColumn:
        text = f"{name} {units[name].name}" if name in units else name
        return ListColumn(f"{text}*" if name == by else text, width, from_width=from_width)

    on_gpu = 0 if tree.gpu_ns else NEVER
    columns = (
        column("GPU", 9, on_gpu),
        ListColumn("share", 6),
        ListColumn("", BAR, left=True, from_width=70),
        column("self", 9),
        column("kernels", 8, on_gpu),
        column("calls", 6, 90 if tree.gpu_ns else 0),
        column("CPU", 9, 100 if tree.gpu_ns else 0),
        ListColumn("module*" if by == "name" else "module", 0, left=True),
    )
    return ModuleTable(tree, measure, tree.whole(measure), units, columns)


def heading(tree: ModuleTree, measure: str) -> str:
    """What the shares are of."""
    whole = tree.whole(measure)
    text = count(whole) if measure in ("kernels", "calls") else duration(whole)
    of_self = f"of self time on the {'GPU' if tree.gpu_ns else 'CPU'}"
    return f"modules and annotations   share of the {text} {WHOLES.get(measure, of_self)}"


BELOW = 4  # lines of the pane about the module under the cursor
NO_MODULES = "nothing in this trace names a part of the program: record it with with_stack=True"
NOTHING = Preorder(*(np.empty(0, dtype=np.int64) for _ in range(3)))


class ModulesPage(TreeListPage):
    """Space opens and closes a module, Enter shows its longest call in the timeline."""

    name = "modules"
    title = "Modules"
    key = "6"
    help = "GPU time of each module of the program"
    hints = (
        "help keys",
        "row-down/row-up move",
        "turn open",
        "show its longest call",
        "modules-sort-right/modules-sort-left sort",
        "copy copy",
    )

    def open(self, state: State) -> State:
        return self.with_nodes(state, self.opened(state).nodes)

    def led_to(self, state: State, node: int) -> State:
        """The cursor on a node, what is around it open."""
        return self.shown_at(state, int(self.order(state).place[node]))

    def order(self, state: State) -> Preorder:
        tree = _tree(state)
        return tree.preorder(state.modules_sort or tree.measure()) if tree else NOTHING

    def open_at_first(self, state: State) -> Flags:
        tree = _tree(state)
        return first_open(tree)[self.order(state).nodes] if tree else np.empty(0, dtype=np.bool_)

    def rows(self, state: State) -> Rows:
        tree = _tree(state)
        if tree is None or not len(tree.end):
            return no_rows(NO_MODULES if tree else working(state.side.trace, "the modules"))
        table, glyphs = module_table(tree, state.modules_sort), glyphs_for(state.ascii_only)

        def row(node: int, mark: str, width: int) -> list[Styled]:
            return table.row(node, mark, glyphs, width)

        return self.tree_rows(state, table.columns, row)

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """What the shares are of."""
        tree = _tree(state)
        if tree is None or not len(tree.end):
            return ()
        said = f" {heading(tree, tree.measure(state.modules_sort))}"
        return (Pane(1, text([Said(said, "plain")])),)

    def chosen(self, state: State, index: int) -> State:
        tree, node = _tree(state), int(self.order(state).nodes[self.opened(state).shown[index]])
        if tree is None or node >= len(tree.times):
            return told(state, "this belongs to no module, so there is no call to show")
        path, row = tree.times[node].path, int(tree.row[node])
        return search.shown(state, Hits(path, state.active, np.array([row])).step(1))

    def module(self, state: State) -> int:
        """The number of the module under the cursor, -1 for none."""
        tree, node = _tree(state), self.tree_node(state)
        return node if tree and node < len(tree.times) else -1

    def subject(self, state: State) -> int:
        """The longest call of the module under the cursor."""
        tree, node = _tree(state), self.module(state)
        return int(tree.row[node]) if tree and node >= 0 else -1

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        return (Pane(BELOW, self._about(state)),)

    def follow(self, before: State, state: State) -> State:
        """More of the trace has another tree."""
        now = before.list_of(self.name)
        return state.with_list(self.name, replace(now, cursor=0, top=0, opened=None))

    def copied(self, state: State) -> str:
        """The path of the module under the cursor."""
        tree, node = _tree(state), self.module(state)
        return names_text([tree.times[node].path]) if tree and node >= 0 else ""

    def _about(self, state: State) -> TextPicture:
        glyphs, tree, node = glyphs_for(state.ascii_only), _tree(state), self.module(state)

        def lines(width: int, height: int) -> list[Said]:
            return about(tree.times[node], width) if tree and node >= 0 else []

        return ruled((tree, node), "", glyphs.rule, lines)


def _tree(state: State) -> ModuleTree | None:
    answer = state.side.insight.answer
    return answer.modules if answer else None


def about(time: ModuleTime, width: int) -> list[Said]:
    """The whole path, and the figures that have no column."""
    calls, cpu, own = plural(time.count, "call"), duration(time.cpu_ns), duration(time.cpu_self_ns)
    parts = [f"{calls} on the CPU: {cpu}, {own} of it self"]
    if time.gpu_backward_ns or time.gpu_recompute_ns:
        forward = duration(time.gpu_ns - time.gpu_backward_ns - time.gpu_recompute_ns)
        again = f", recompute {duration(time.gpu_recompute_ns)}" if time.gpu_recompute_ns else ""
        parts.append(f"GPU forward {forward}, backward {duration(time.gpu_backward_ns)}{again}")
    elif time.gpu_ns:
        parts.append(f"{duration(time.gpu_ns // max(1, time.count))} of GPU time a call")
    return [Said(narrow(time.path), "plain"), *map(Said, flow(parts, width))]


PAGE = ModulesPage()


def sort_by(by: int) -> Run:
    """Sorted by the next column, or the one before, as an action runs it."""

    def run(state: State) -> State:
        tree = _tree(state)
        if tree is None or not len(tree.end):
            return state
        sort = SORTS[(SORTS.index(state.modules_sort or tree.measure()) + by) % len(SORTS)]
        return PAGE.sorted(state, lambda now: replace(now, modules_sort=sort))

    return run


_action = partial(action, section="In the modules", where=on(PAGE.name))
ModulesPage.actions = sort_actions(_action, "modules-", sort_by)
