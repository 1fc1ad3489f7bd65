"""The modules page: the time of the modules and annotations of the program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from fusetui.text.figures import duration, plural
from fusetui.trace.model.arrays import Flags
from fusetui.trace.model.report import recorded_with
from fusetui.trace.program.modules import ModuleTime
from fusetui.tui.drawing.details import flow
from fusetui.tui.drawing.picture import Said, ruled
from fusetui.tui.drawing.schemes import glyphs_for
from fusetui.tui.layout.answer import working
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.modules import ModuleTree, first_open
from fusetui.tui.layout.text_layout import NEVER
from fusetui.tui.pages.folding import BAR, Columns, TreeListPage, figure_column
from fusetui.tui.pages.page import Pane, sort_actions
from fusetui.tui.state import search
from fusetui.tui.state.action import action, on
from fusetui.tui.state.state import Size, State, told

WHOLES: Final = {"GPU": "of GPU time", "CPU": "on the CPU", "kernels": "kernels", "calls": "calls"}
BELOW = 4  # lines of the pane about the module under the cursor
NO_MODULES = "nothing in this trace names a part of the program: {} records modules"


class ModulesPage(TreeListPage[ModuleTree]):
    """Space opens and closes a module, Enter shows its longest call in the timeline."""

    name, title, key = "modules", "Modules", "6"
    help = "GPU time of each module of the program"
    hints = (
        "help keys; row-down/row-up move; turn open; show its longest call; "
        "modules-sort-right/modules-sort-left sort; copy copy"
    )

    def open(self, state: State) -> State:
        return self.with_nodes(state, self.opened(state).nodes)

    def led_to(self, state: State, node: int) -> State:
        """The cursor on a node, what is around it open."""
        return self.shown_at(state, int(self.order(state).place[node]))

    def tree(self, state: State) -> ModuleTree | None:
        answer = state.side.insight.answer
        return answer.modules if answer else None

    def sort(self, state: State, tree: ModuleTree) -> str:
        return state.modules_sort or tree.measure()

    def sorted_by(self, state: State, sort: str) -> State:
        return replace(state, modules_sort=sort)

    def open_at_first(self, tree: ModuleTree) -> Flags:
        return first_open(tree)

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
            "name": column("name", 0, title="module"),
        }

    def look(self, tree: ModuleTree, node: int) -> tuple[str, str]:
        return "plain" if node < len(tree.times) else "faint", ""

    def texts(self, state: State, tree: ModuleTree, node: int) -> dict[str, str]:
        return {} if node < len(tree.times) else {"self": ""}

    def heading(self, state: State, tree: ModuleTree, measure: str) -> tuple[str, str]:
        of_self = f"of self time on the {'GPU' if tree.gpu_ns else 'CPU'}"
        return "modules and annotations", WHOLES.get(measure, of_self)

    def nothing(self, state: State) -> str:
        if self.tree(state) is None:
            return working(state.side.trace, "the modules")
        return NO_MODULES.format(recorded_with("with_stack=True", state.side.trace.report.format))

    def chosen(self, state: State, index: int) -> State:
        time = self.module(state)
        if time is None:
            return told(state, "this belongs to no module, so there is no call to show")
        return search.shown_row(state, self.subject(state), time.path)

    def module(self, state: State) -> ModuleTime | None:
        """The module under the cursor."""
        tree, node = self.tree(state), self.tree_node(state)
        return tree.times[node] if tree and 0 <= node < len(tree.times) else None

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        time, rule = self.module(state), glyphs_for(state.ascii_only).rule
        return (Pane(BELOW, ruled(time, "", rule, partial(about, time))),)

    def follow(self, before: State, state: State) -> State:
        """More of the trace has another tree."""
        now = before.list_of(self.name)
        return state.with_list(self.name, replace(now, cursor=0, top=0, opened=None))

    def texts_of_table(self, tree: ModuleTree, nodes: Sequence[int]) -> dict[str, list[str]]:
        """What belongs to no module has its reason in place of a path."""
        count = len(tree.times)
        paths = [tree.times[node].path if node < count else tree.label(node) for node in nodes]
        return {"path": paths}

    def column_name(self, tree: ModuleTree, figure: str) -> str:
        """As `fusetui modules --format` has it."""
        own = "gpu_self_ns" if tree.gpu_ns else "cpu_self_ns"
        return {"self": own, "calls": "count"}.get(figure) or super().column_name(tree, figure)


def about(time: ModuleTime | None, width: int, height: int) -> list[Said]:
    """The whole path, and the figures that have no column."""
    if time is None:
        return []
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
_action = partial(action, section="In the modules", where=on(PAGE.name))
ModulesPage.actions = sort_actions(_action, "modules-", PAGE.sort_on)
