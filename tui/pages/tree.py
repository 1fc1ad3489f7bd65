"""The trees of the program: CPU ops of every thread with total, self and GPU time; and
the time of its modules and annotations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
from msgspec.structs import replace

from fusetui.text.figures import duration, percent, plural
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import kept_result
from fusetui.trace.model.report import recorded_with
from fusetui.trace.program.modules import ModuleTime
from fusetui.tui.drawing.details import flow
from fusetui.tui.drawing.picture import Said, ruled
from fusetui.tui.drawing.schemes import TEXT, glyphs_for
from fusetui.tui.layout.answer import distinct_kinds, working
from fusetui.tui.layout.figure_trees import ModuleTree
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.op_tree import (
    MODES,
    OpTree,
    call_tree,
    callers_tree,
    op_tree,
    same_open,
)
from fusetui.tui.layout.text_layout import NEVER, start_unit
from fusetui.tui.pages.folding import BAR, Columns, TreeListPage, figure_column
from fusetui.tui.pages.page import Pane, next_of, sort_actions
from fusetui.tui.state import search
from fusetui.tui.state.action import action, on
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import Outcome, Size, State, told

WHAT: Final = {
    "path": "ops top-down, by call path",
    "callers": "ops bottom-up, with their callers",
    "each": "single ops",
}
WHOLES: Final = {
    **{"GPU": "of GPU time that they launched", "total": "of total time"},
    **{"self": "of their self time", "kernels": "kernels", "count": "calls"},
}
NAME = "tree"
LARGE = 200_000  # slices: the tree of fewer is made in a moment
TOO_MANY = "Too many single ops to sort: they stay in time order"
WORKING = "Building the op tree of this large trace..."


class TreePage(TreeListPage[OpTree]):
    """Space opens and closes a node, Enter shows the op, or the longest of those
    merged."""

    name, title, key = NAME, "Op tree", "2"
    help = "CPU ops with total, self and GPU time: top-down, bottom-up or flat"
    hints = (
        "help keys; row-down/row-up move; turn open; show go to longest; "
        "tree-mode top-down/bottom-up/flat; tree-sort-right/tree-sort-left sort; copy copy"
    )
    zeros = ("total", "self", "count")

    def missing(self, state: State) -> str:
        return awaited(state, state.tree.mode)

    def open(self, state: State) -> State:
        """Shows the selected slice, if it is in the tree."""
        return self.led_to(state, self.node_of(state, state.view.selected))

    def tree(self, state: State) -> OpTree:
        return shown_tree(state)

    def sort(self, state: State, tree: OpTree) -> str:
        return state.tree.sort_of(tree)

    def sorted_by(self, state: State, sort: str) -> State:
        return replace(state, tree=state.tree.sorted_by(sort))

    def columns(self, state: State, tree: OpTree, sort: str) -> Columns:
        column, mode = partial(figure_column, tree, sort), state.tree.mode
        launches, at = tree.whole("GPU") > 0, f"at {start_unit(tree.trace).name}"
        last = column("start", 10, title=at) if mode == "each" else column("count", 7)
        return {
            "GPU": column("GPU", 9, 0 if launches else NEVER),
            "share": column("share", 7, 70),
            "": column("", BAR, 90),
            "total": column("total", 10),
            "self": column("self", 9),
            "kernels": column("kernels", 8, 70 if launches else NEVER),
            "start" if mode == "each" else "count": last,
            "name": column(
                "name", 0, title="op, then its callers" * (mode == "callers") or "op"
            ),
        }

    def look(self, tree: OpTree, node: int) -> tuple[str, str]:
        is_thread = int(tree.row[node]) < 0
        return (
            ("title", "title") if is_thread else ("plain", tree.kind(node).token + TEXT)
        )

    def texts(self, state: State, tree: OpTree, node: int) -> dict[str, str]:
        if (row := int(tree.row[node])) < 0:
            return {"self": "", "start": ""}
        start = int(tree.trace.start[row]) - state.side.origin
        return {"start": start_unit(tree.trace).text(start)}

    def heading(self, state: State, tree: OpTree, measure: str) -> tuple[str, str]:
        whole, of = tree.whole(measure), WHOLES[measure]
        if measure == "GPU" and whole < tree.all_gpu_ns:
            of += f", {percent(whole, tree.all_gpu_ns)} of all GPU time"
        return WHAT[state.tree.mode], of

    def sort_on(self, state: State, by: int) -> State:
        if state.tree.mode == "each" and len(shown_tree(state)) > LARGE:
            return told(state, TOO_MANY, "tree-mode merge them")
        return super().sort_on(state, by)

    def chosen(self, state: State, index: int) -> Outcome:
        """Shows the op, or the longest of its path, in the timeline; opens or closes a
        thread."""
        trace, tree = state.side.trace, shown_tree(state)
        node = int(self.opened(state).shown[index])
        row = int(tree.row[node])
        if row < 0:
            return self.turn(state)
        same = np.flatnonzero(tree.of_row == node)
        same = same[trace.role[same] == trace.role[row]]
        same = same[np.argsort(trace.start[same], kind="stable")]
        rows = same if len(same) else np.array([row])
        at = int((rows == row).argmax())
        return search.shown(state, Hits(trace.name_of(row), state.active, rows, at))

    def texts_of_table(
        self, tree: OpTree, nodes: Sequence[int]
    ) -> dict[str, list[str]]:
        return {"name": [tree.name_of(node) for node in nodes]}

    def follow(self, before: State, state: State) -> State:
        """Keeps open nodes and the cursor; of merged ops, which have other places, the
        first."""
        shown, here = before.list_of(self.name).opened, self.node(before)
        if shown is None:
            return state
        old, new = shown_tree(before), shown_tree(state)
        if old.mode == "each":
            nodes, node = same_open(old, shown.nodes, here, new)
        else:
            now = {_path_of(new, n): n for n in range(len(new))}
            opened = [
                now.get(_path_of(old, n), -1)
                for n in shown.shown[shown.nodes[shown.shown]]
            ]
            nodes = new.open_at_first.copy()
            nodes[[n for n in opened if n >= 0]] = True
            node = now.get(_path_of(old, here), -1) if here >= 0 else -1
        return self.on_node(self.with_nodes(state, nodes), node)

    def node_of(self, state: State, row: int) -> int:
        return int(shown_tree(state).of_row[row]) if row >= 0 else -1


MAKERS: dict[str, Callable[[Trace], OpTree]] = dict(
    zip(MODES, (call_tree, callers_tree, op_tree), strict=True)
)


def shown_tree(state: State) -> OpTree:
    return MAKERS[state.tree.mode](state.side.trace)


def awaited(state: State, mode: str) -> str:
    """A sentence while the tree of a large trace is made beside the app; no key makes
    that."""
    side, make = state.side, MAKERS[mode]
    is_large = len(side.trace) > LARGE and side.trace.report.prefix is None
    is_known = kept_result(side.trace, make) is not None
    return WORKING if is_large and not is_known else ""


def _path_of(tree: OpTree, node: int) -> tuple[str, ...]:
    above = int(tree.parent[node])
    return (*(_path_of(tree, above) if above >= 0 else ()), tree.name_of(node))


TREE = TreePage()


def next_mode(state: State) -> State:
    """By call path, then from the ops up, then each; the op under the cursor stays in
    sight."""
    row, mode = TREE.subject(state), next_of(MODES, state.tree.mode)
    if said := awaited(state, mode):
        return told(state, said)
    now = replace(state, tree=replace(state.tree, mode=mode)).with_list(NAME)
    return TREE.led_to(now, TREE.node_of(now, row))


_action = partial(action, section="In the op tree", where=on(NAME))

TreePage.actions = (
    _action(
        "tree-mode", "Merge", "t", "by call path, from the ops up, or each", next_mode
    ),
    *sort_actions(_action, "tree-", TREE.sort_on),
)

OF_MODULES = {
    "GPU": "of GPU time",
    "CPU": "on the CPU",
    "kernels": "kernels",
    "calls": "calls",
}
BELOW = 4  # lines of the pane about the module under the cursor
NO_MODULES = "No modules and no annotations in this trace. {} records modules."


class ModulesPage(TreeListPage[ModuleTree]):
    """Space opens and closes a module, Enter shows its longest call in the timeline."""

    name, title, key = "modules", "Modules", "6"
    help = "GPU time of each module and annotation"
    hints = (
        "help keys; row-down/row-up move; turn open; show go to longest call; "
        "modules-sort-right/modules-sort-left sort; copy copy"
    )

    def open(self, state: State) -> State:
        return self.with_nodes(state, self.opened(state).nodes)

    def tree(self, state: State) -> ModuleTree | None:
        answer = state.side.insight.answer
        return answer.modules if answer else None

    def sort(self, state: State, tree: ModuleTree) -> str:
        return state.modules_sort or tree.measure()

    def sorted_by(self, state: State, sort: str) -> State:
        return replace(state, modules_sort=sort)

    def columns(self, state: State, tree: ModuleTree, sort: str) -> Columns:
        column = partial(figure_column, tree, sort)
        calls, cpu, on_gpu = (90, 100, 0) if tree.gpu_ns else (0, 0, NEVER)
        return {
            "GPU": column("GPU", 9, on_gpu),
            "share": column("share", 6),
            "": column("", BAR, 70),
            "self": column("self", 9),
            "kernels": column("kernels", 8, on_gpu),
            "calls": column("calls", 6, calls),
            "CPU": column("CPU", 9, cpu),
            "name": column("name", 0, title=" or ".join(distinct_kinds(tree))),
        }

    def look(self, tree: ModuleTree, node: int) -> tuple[str, str]:
        return "plain" if node < len(tree.times) else "faint", ""

    def texts(self, state: State, tree: ModuleTree, node: int) -> dict[str, str]:
        return {} if node < len(tree.times) else {"self": ""}

    def heading(self, state: State, tree: ModuleTree, measure: str) -> tuple[str, str]:
        of_self = f"of self time on the {'GPU' if tree.gpu_ns else 'CPU'}"
        return "modules and annotations", OF_MODULES.get(measure, of_self)

    def nothing(self, state: State) -> str:
        if self.tree(state) is None:
            return working(state.side.trace, "the modules")
        return NO_MODULES.format(
            recorded_with("with_stack=True", state.side.trace.report.format)
        )

    def chosen(self, state: State, index: int) -> State:
        if (time := self.module(state)) is None:
            return told(
                state, "This work is outside modules: there is no call to show."
            )
        return search.shown_row(state, self.subject(state), time.path)

    def module(self, state: State) -> ModuleTime | None:
        tree, node = self.tree(state), self.node(state)
        return tree.times[node] if tree and 0 <= node < len(tree.times) else None

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        time, rule = self.module(state), glyphs_for(state.ascii_only).rule
        return (Pane(BELOW, ruled(time, "", rule, partial(about, time))),)

    def follow(self, before: State, state: State) -> State:
        return state.with_list(self.name)

    def texts_of_table(
        self, tree: ModuleTree, nodes: Sequence[int]
    ) -> dict[str, list[str]]:
        """What belongs to no module has its reason in place of a path."""
        count = len(tree.times)
        paths = [
            tree.times[node].path if node < count else tree.label(node)
            for node in nodes
        ]
        return {"path": paths}

    def column_name(self, tree: ModuleTree, figure: str) -> str:
        """As `fusetui modules --format` has it."""
        own = "gpu_self_ns" if tree.gpu_ns else "cpu_self_ns"
        return {"self": own, "calls": "count"}.get(figure) or super().column_name(
            tree, figure
        )


def about(time: ModuleTime | None, width: int, height: int) -> list[Said]:
    if time is None:
        return []
    calls, cpu, own = (
        plural(time.count, "call"),
        duration(time.cpu_ns),
        duration(time.cpu_self_ns),
    )
    parts = [f"{calls} on the CPU: total {cpu}, self {own}"]
    if time.gpu_backward_ns or time.gpu_recompute_ns:
        forward = duration(time.gpu_ns - time.gpu_backward_ns - time.gpu_recompute_ns)
        again = (
            f", recompute {duration(time.gpu_recompute_ns)}"
            if time.gpu_recompute_ns
            else ""
        )
        parts.append(
            f"GPU forward {forward}, backward {duration(time.gpu_backward_ns)}{again}"
        )
    elif time.gpu_ns:
        parts.append(f"{duration(time.gpu_ns // max(1, time.count))} GPU per call")
    return [Said(narrow(time.path), "plain"), *map(Said, flow(parts, width))]


MODULES = ModulesPage()
_of_modules = partial(action, section="In the modules", where=on(MODULES.name))
ModulesPage.actions = sort_actions(_of_modules, "modules-", MODULES.sort_on)
