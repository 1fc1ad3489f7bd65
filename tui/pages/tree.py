"""The tree pages: CPU ops of every thread with total, self and GPU time; and the time
of modules and annotations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
from msgspec.structs import replace

from fusetui.text.figures import duration, percent, plural
from fusetui.trace.model.arrays import NO_ROW, Flags
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import kept_result
from fusetui.trace.program.modules import ModuleTime
from fusetui.tui.drawing.details import flow_texts
from fusetui.tui.drawing.picture import Said, make_ruled_picture
from fusetui.tui.drawing.schemes import TEXT, choose_glyphs
from fusetui.tui.layout.answer import distinct_kinds, explain_missing_result
from fusetui.tui.layout.figure_trees import PASSES, ModuleTree, forward_ns
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.op_tree import (
    MODES,
    OpTree,
    build_call_tree,
    build_callers_tree,
    build_op_tree,
    carry_open_nodes,
)
from fusetui.tui.layout.text_layout import NEVER, choose_start_unit
from fusetui.tui.pages.folding import (
    BAR_CELLS,
    Columns,
    TreeListPage,
    make_figure_column,
)
from fusetui.tui.pages.page import Pane, cycle_name, sort_actions
from fusetui.tui.state import search
from fusetui.tui.state.action import action, on
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import OpenNodes, Outcome, Size, State, told

WHAT: Final = {
    "path": "ops top-down, by call path",
    "callers": "ops bottom-up, with their callers",
    "each": "single ops",
}
WHOLES: Final = {
    "GPU": "of GPU time that they launched",
    "total": "of total time",
    "self": "of their self time",
    "kernels": "kernels",
    "count": "calls",
}
NAME = "tree"
MAX_SLICES_AT_ONCE = 200_000  # the tree of more takes longer than a moment
TOO_MANY = "Too many single ops to sort: they stay in time order"
WORKING = "Building the op tree of this large trace..."


class TreePage(TreeListPage[OpTree]):
    """Space opens and closes a node, Enter shows the op, or the longest of those
    merged."""

    name, title, key = NAME, "Op tree", "2"
    short = "Tree"
    help = "CPU ops with total, self and GPU time: top-down, bottom-up or flat"
    hints = (
        "help help; row-down/row-up move; turn open; show go to longest; "
        "details info; search search; tree-mode top-down/bottom-up/flat; "
        "tree-sort-right/tree-sort-left sort; copy copy"
    )
    zeros = ("total", "self", "count")

    def missing(self, state: State) -> str:
        """Return a sentence while the op tree of a large trace is being made, else ""."""
        return explain_wait(state, state.tree.mode)

    def open(self, state: State) -> State:
        """Return the state with the cursor on the selected slice, if that is in the
        tree."""
        return self.led_to(state, self.node_of(state, state.view.selected))

    def tree(self, state: State) -> OpTree:
        """Return the op tree in the chosen mode: by call path, by callers, or single
        ops."""
        return shown_tree(state)

    def sort(self, state: State, tree: OpTree) -> str:
        """Return the figure by which the op tree is sorted."""
        return state.tree.sort_of(tree)

    def sorted_by(self, state: State, sort: str) -> State:
        """Return the state with the op tree sorted by the figure `sort`."""
        return replace(state, tree=state.tree.sorted_by(sort))

    def columns(self, state: State, tree: OpTree, sort: str) -> Columns:
        """Return the columns of the op tree in the chosen mode. Without any GPU work,
        the columns about the GPU are left out."""
        column = partial(make_figure_column, tree, sort)
        has_gpu_work = tree.whole("GPU") > 0
        from_width_of_gpu = 0 if has_gpu_work else NEVER
        from_width_of_kernels = 70 if has_gpu_work else NEVER
        columns = {
            "GPU": column("GPU", 9, from_width_of_gpu),
            "share": column("share", 7, 70),
            "": column("", BAR_CELLS, 90),
            "total": column("total", 10),
            "self": column("self", 9),
            "kernels": column("kernels", 8, from_width_of_kernels),
        }
        if state.tree.mode == "each":
            start_title = f"at {choose_start_unit(tree.trace).name}"
            columns["start"] = column("start", 10, title=start_title)
        else:
            columns["count"] = column("count", 7)
        is_from_ops_up = state.tree.mode == "callers"
        name_title = "op, then what calls it" if is_from_ops_up else "op"
        columns["name"] = column("name", 0, title=name_title)
        return columns

    def look(self, tree: OpTree, node: int) -> tuple[str, str]:
        """Return the color tokens of a node's row: those of a title for a thread, else
        the name in the color of its kind."""
        is_thread = int(tree.row[node]) == NO_ROW
        if is_thread:
            return "title", "title"
        return "plain", tree.kind(node).token + TEXT

    def texts(self, state: State, tree: OpTree, node: int) -> dict[str, str]:
        """Return the start of a single op as text. A thread has neither a start nor a
        self time."""
        row = int(tree.row[node])
        if row == NO_ROW:
            return {"self": "", "start": ""}
        start = int(tree.trace.start[row]) - state.side.origin
        return {"start": choose_start_unit(tree.trace).text(start)}

    def heading(self, state: State, tree: OpTree, measure: str) -> tuple[str, str]:
        """Return what the rows are, and what their shares are of.

        For GPU time it also says which part of all GPU time the ops launched, unless
        they launched all of it.
        """
        whole_ns = tree.whole(measure)
        whole_text = WHOLES[measure]
        if measure == "GPU" and whole_ns < tree.all_gpu_ns:
            whole_text += f", {percent(whole_ns, tree.all_gpu_ns)} of all GPU time"
        return WHAT[state.tree.mode], whole_text

    def sort_on(self, state: State, by: int) -> State:
        """Return the state with the ops sorted by the next or previous column. Very
        many single ops stay in order of time, and a message says so."""
        is_each = state.tree.mode == "each"
        if is_each and len(shown_tree(state)) > MAX_SLICES_AT_ONCE:
            return told(state, TOO_MANY, "tree-mode merge them")
        return super().sort_on(state, by)

    def chosen(self, state: State, index: int) -> Outcome:
        """Carry out Enter: show the op in the timeline, the longest one where the node
        merges several. On a thread, open or close it."""
        trace = state.side.trace
        tree = shown_tree(state)
        node = int(self.opened(state).shown[index])
        row = int(tree.row[node])
        if row == NO_ROW:
            return self.turn(state)
        rows = np.flatnonzero(tree.of_row == node)
        rows = rows[trace.role[rows] == trace.role[row]]
        rows = rows[np.argsort(trace.start[rows], kind="stable")]
        if not len(rows):
            rows = np.array([row])
        index_of_longest = int((rows == row).argmax())
        return search.shown(
            state, Hits(trace.name_of(row), state.active, rows, index_of_longest)
        )

    def texts_of_table(
        self, tree: OpTree, nodes: Sequence[int]
    ) -> dict[str, list[str]]:
        """Return the column of a saved table that names ops, as the trace has them."""
        return {"name": [tree.name_of(node) for node in nodes]}

    def follow(self, before: State, state: State) -> State:
        """Return the state after more of the trace was read, with open nodes and the
        cursor kept. Merged ops are found again by their call paths."""
        opened = before.list_of(self.name).opened
        if opened is None:
            return state
        node = self.node(before)
        old = shown_tree(before)
        new = shown_tree(state)
        if old.mode == "each":
            nodes, node = carry_open_nodes(old, opened.nodes, node, new)
        else:
            nodes, node = _find_same_open(old, opened, node, new)
        return self.on_node(self.with_nodes(state, nodes), node)

    def node_of(self, state: State, row: int) -> int:
        """Return the node that has a row of the trace; -1 for none."""
        return int(shown_tree(state).of_row[row]) if row != NO_ROW else -1


MAKERS: dict[str, Callable[[Trace], OpTree]] = {
    "path": build_call_tree,
    "callers": build_callers_tree,
    "each": build_op_tree,
}


def shown_tree(state: State) -> OpTree:
    """Return the op tree in the chosen mode, for the active trace."""
    return MAKERS[state.tree.mode](state.side.trace)


def explain_wait(state: State, mode: str) -> str:
    """Return a sentence while the op tree of a large trace is made by another process,
    else "". Keys never make such a tree, because they would have to wait."""
    trace = state.side.trace
    is_large = len(trace) > MAX_SLICES_AT_ONCE and trace.report.prefix is None
    is_known = kept_result(trace, MAKERS[mode]) is not None
    return WORKING if is_large and not is_known else ""


def _names_to_node(tree: OpTree, node: int) -> tuple[str, ...]:
    """Return the names from the outermost node of the tree to this one."""
    parent = int(tree.parent[node])
    outer_names = _names_to_node(tree, parent) if parent >= 0 else ()
    return (*outer_names, tree.name_of(node))


def _find_same_open(
    old: OpTree, opened: OpenNodes, node: int, new: OpTree
) -> tuple[Flags, int]:
    """Return which nodes of a newer, longer tree are open, and where `node` is in it
    (-1 where it is not).

    Nodes are the same if they have the same call path. Only nodes that were open and
    shown count.
    """
    new_node_of_path = {}
    for new_node in range(len(new)):
        new_node_of_path[_names_to_node(new, new_node)] = new_node
    is_open = new.open_at_first.copy()
    is_shown_open = opened.nodes[opened.shown]
    for old_node in opened.shown[is_shown_open]:
        path = _names_to_node(old, old_node)
        if path in new_node_of_path:
            is_open[new_node_of_path[path]] = True
    if node < 0:
        return is_open, -1
    return is_open, new_node_of_path.get(_names_to_node(old, node), -1)


TREE = TreePage()


def switch_mode(state: State) -> State:
    """Show the op tree in the next mode: by call path, by callers, single ops. The op
    under the cursor stays in sight."""
    row = TREE.subject(state)
    mode = cycle_name(MODES, state.tree.mode)
    waiting = explain_wait(state, mode)
    if waiting:
        return told(state, waiting)
    switched_state = replace(state, tree=replace(state.tree, mode=mode)).with_list(NAME)
    return TREE.led_to(switched_state, TREE.node_of(switched_state, row))


_action = partial(action, section="In the op tree", where=on(NAME))

TreePage.actions = (
    _action(
        name="tree-mode",
        title="Merge",
        written="t",
        help="by call path, from the ops up, or each",
        run=switch_mode,
    ),
    *sort_actions(_action, "tree-", TREE.sort_on),
)

OF_MODULES = {
    "GPU": "of GPU time",
    "forward": "of GPU time of the forward pass in modules",
    "backward": "of GPU time of the backward pass in modules",
    "CPU": "on the CPU",
    "kernels": "kernels",
    "calls": "calls",
}
MIN_CELLS_WITH_PASSES = 110  # of a screen that has columns of both passes
BELOW_LINES = 4  # of the pane about the module under the cursor


class ModulesPage(TreeListPage[ModuleTree]):
    """Space opens and closes a module, Enter shows its longest call in the timeline."""

    name, title, key = "modules", "Modules", "6"
    short = "Mod"
    help = "GPU time of each module and annotation"
    hints = (
        "help help; row-down/row-up move; turn open; show go to longest call; "
        "details info; search search; modules-sort-right/modules-sort-left sort; copy copy"
    )

    def open(self, state: State) -> State:
        """Return the state with the same modules open, listed in the order of the
        sorted column."""
        return self.with_nodes(state, self.opened(state).nodes)

    def tree(self, state: State) -> ModuleTree | None:
        """Return the tree of modules, or None until the trace is analyzed."""
        answer = state.side.insight.answer
        return answer.modules if answer else None

    def sort(self, state: State, tree: ModuleTree) -> str:
        """Return the figure by which modules are sorted: the user's choice, else the
        main figure of the trace."""
        return state.modules_sort or tree.measure()

    def sorted_by(self, state: State, sort: str) -> State:
        """Return the state with the modules sorted by the figure `sort`."""
        return replace(state, modules_sort=sort)

    def columns(self, state: State, tree: ModuleTree, sort: str) -> Columns:
        """Return the columns of the list of modules.

        Without GPU work, columns about the GPU are left out. With it, CPU times need a
        wide screen. Columns of passes need known backward work.
        """
        column = partial(make_figure_column, tree, sort)
        has_gpu_work = bool(tree.gpu_ns)
        from_width_of_gpu = 0 if has_gpu_work else NEVER
        has_passes = "backward" in tree.sorts
        from_width_of_passes = MIN_CELLS_WITH_PASSES if has_passes else NEVER
        # without GPU work there is room for both
        from_width_of_calls = 90 if has_gpu_work else 0
        from_width_of_cpu = 100 if has_gpu_work else 0
        name_title = " or ".join(distinct_kinds(tree))
        return {
            "GPU": column("GPU", 9, from_width_of_gpu),
            "share": column("share", 6),
            "": column("", BAR_CELLS, 70),
            "forward": column("forward", 11, from_width_of_passes),
            "backward": column("backward", 12, from_width_of_passes),
            "self": column("self", 9),
            "kernels": column("kernels", 8, from_width_of_gpu),
            "calls": column("calls", 6, from_width_of_calls),
            "CPU": column("CPU", 9, from_width_of_cpu),
            "name": column("name", 0, title=name_title),
        }

    def look(self, tree: ModuleTree, node: int) -> tuple[str, str]:
        """Return the color tokens of a row: faint for work that belongs to no module."""
        return "plain" if node < len(tree.times) else "faint", ""

    def texts(self, state: State, tree: ModuleTree, node: int) -> dict[str, str]:
        """Return a blank self time for work that belongs to no module, else nothing."""
        return {} if node < len(tree.times) else {"self": ""}

    def heading(self, state: State, tree: ModuleTree, measure: str) -> tuple[str, str]:
        """Return what the rows are, and what their shares are of."""
        of_self = f"of self time on the {'GPU' if tree.gpu_ns else 'CPU'}"
        return "modules and annotations", OF_MODULES.get(measure, of_self)

    def awaits(self, state: State) -> bool:
        """Return whether the modules are being computed. A part of a trace has none."""
        return self.tree(state) is None and state.side.trace.report.prefix is None

    def nothing(self, state: State) -> str:
        """Return the sentence that is shown without modules: they are not known yet, or
        why there are none and how to record them."""
        trace = state.side.trace
        if self.tree(state) is None:
            return explain_missing_result(trace, "the modules")
        from fusetui.report.program import explain_no_modules  # rarely needed

        nothing, how_to_record = explain_no_modules(trace.report.format)
        reason = "none was recorded"
        if len(trace.rows_of(Role.ANNOTATION)):
            reason = "those on the timeline are of steps and collectives"
        return f"{nothing.capitalize()}: {reason}. To have them, {how_to_record}."

    def chosen(self, state: State, index: int) -> State:
        """Carry out Enter: show the longest call of the module in the timeline. A
        message says why work of no module has none."""
        module = self.module(state)
        if module is None:
            return told(
                state, f"{self._explain_no_module(state)}: there is no call to show"
            )
        return search.show_row(state, self.subject(state), module.path)

    def _explain_no_module(self, state: State) -> str:
        """Return why the work under the cursor belongs to no module, as its row says."""
        tree = self.tree(state)
        return tree.label(self.node(state)).strip("()").capitalize() if tree else ""

    def module(self, state: State) -> ModuleTime | None:
        """Return the module under the cursor; None for work that belongs to no module."""
        tree = self.tree(state)
        node = self.node(state)
        if tree is None or not 0 <= node < len(tree.times):
            return None
        return tree.times[node]

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        """Return the pane below the list, with a few lines about the module under the
        cursor."""
        module = self.module(state)
        rule = choose_glyphs(state.ascii_only).rule
        picture = make_ruled_picture(module, "", rule, partial(about, module))
        return (Pane(BELOW_LINES, picture),)

    def follow(self, before: State, state: State) -> State:
        """Return the state after more of the trace was read: the list starts at its
        top, because the modules are not known yet."""
        return state.with_list(self.name)

    def texts_of_table(
        self, tree: ModuleTree, nodes: Sequence[int]
    ) -> dict[str, list[str]]:
        """Return the column of a saved table that names modules by their paths. Work of
        no module has the reason instead."""
        paths = []
        for node in nodes:
            is_module = node < len(tree.times)
            paths.append(tree.times[node].path if is_module else tree.label(node))
        return {"path": paths}

    def column_name(self, tree: ModuleTree, figure: str) -> str:
        """Return the title of a figure's column in a saved table, as `fusetui modules
        --format` has it."""
        if figure == "self":
            return "gpu_self_ns" if tree.gpu_ns else "cpu_self_ns"
        if figure == "calls":
            return "count"
        if figure in PASSES:
            return f"gpu_{figure}_ns"
        return super().column_name(tree, figure)


def about(module: ModuleTime | None, width: int, height: int) -> list[Said]:
    """Return lines about a module: its path, its calls on the CPU, and its GPU time by
    pass or per call. They are empty for None."""
    if module is None:
        return []
    calls = plural(module.count, "call")
    cpu = duration(module.cpu_ns)
    cpu_self = duration(module.cpu_self_ns)
    parts = [f"{calls} on the CPU: total {cpu}, self {cpu_self}"]
    if module.gpu_backward_ns or module.gpu_recompute_ns:
        parts.append(_format_passes(module))
    elif module.gpu_ns:
        gpu_per_call = module.gpu_ns // max(1, module.count)
        parts.append(f"{duration(gpu_per_call)} GPU per call")
    lines = [Said(narrow(module.path), "plain")]
    lines += map(Said, flow_texts(parts, width))
    return lines


def _format_passes(module: ModuleTime) -> str:
    """Return the GPU time of a module in the forward pass, the backward pass, and
    recomputation if there is any."""
    backward = duration(module.gpu_backward_ns)
    text = f"GPU forward {duration(forward_ns(module))}, backward {backward}"
    if module.gpu_recompute_ns:
        text += f", recompute {duration(module.gpu_recompute_ns)}"
    return text


MODULES = ModulesPage()
_of_modules = partial(action, section="In the modules", where=on(MODULES.name))
ModulesPage.actions = sort_actions(_of_modules, "modules-", MODULES.sort_on)
