"""The modules page: the time of the modules and annotations of the program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.trace.program.modules import ModuleTime, Unclaimed
from fusetui.trace.program.origin import Nowhere
from fusetui.trace.text.figures import count, duration, percent, plural
from fusetui.trace.text.units import Unit, unit_of
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.bars import share_bar
from fusetui.tui.drawing.details import flow
from fusetui.tui.drawing.glyphs import Glyphs, glyphs_for
from fusetui.tui.drawing.picture import TextPicture, ruled
from fusetui.tui.drawing.rows import Rows, Styled
from fusetui.tui.drawing.said import Said
from fusetui.tui.layout.columns import NEVER, Column, fit, shown, titles
from fusetui.tui.layout.insight import working
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.modules import ModuleTree, first_open
from fusetui.tui.layout.tree import open_to
from fusetui.tui.pages.folding import TreeListPage
from fusetui.tui.pages.page import Pane
from fusetui.tui.state import search
from fusetui.tui.state.copying import names_text
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import Size, State, told

BAR = 10  # cells
BELOW = 4  # lines of the pane about the module under the cursor
NO_MODULES = "nothing in this trace names a part of the program: record it with with_stack=True"
BELONGS_NOWHERE: Final = {
    Nowhere.NOT_LAUNCHED: "(launch not recorded)",
    Nowhere.NO_FORWARD: "(backward, of no recorded forward op)",
    Nowhere.OUTSIDE: "(in no module or annotation)",
}


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
        "copy copy",
    )

    def open(self, state: State) -> State:
        return self.with_nodes(state, self.opened(state).nodes)

    def shown_at(self, state: State, node: int) -> State:
        """The cursor on a node, what is around it open."""
        opened = open_to(self.ends(state), self.opened(state).nodes, node)
        return self.on_node(self.with_nodes(state, opened), node)

    def ends(self, state: State) -> NDArray[np.int64]:
        tree = _tree(state)
        return tree.end if tree else np.empty(0, dtype=np.int64)

    def open_at_first(self, state: State) -> NDArray[np.bool_]:
        tree = _tree(state)
        return first_open(tree) if tree else np.empty(0, dtype=np.bool_)

    def rows(self, state: State) -> Rows:
        tree, opened = _tree(state), self.opened(state)
        if tree is None or not len(tree.end):
            said = NO_MODULES if tree else working(state.side.trace, "the modules")
            return Rows(said, 0, lambda width: f" {said}", lambda index, width: ())
        glyphs = glyphs_for(state.ascii_only)

        def row(index: int, width: int) -> list[Styled]:
            node = int(opened.shown[index])
            return format_node(tree, node, bool(opened.nodes[node]), glyphs, width)

        return Rows(opened, len(opened.shown), lambda w: titles(columns_of(tree), w), row)

    def chosen(self, state: State, index: int) -> State:
        tree = _tree(state)
        node = int(self.opened(state).shown[index])
        if tree is None or node >= len(tree.times):
            return told(state, "this belongs to no module, so there is no call to show")
        path, row = tree.times[node].path, int(tree.row[node])
        return search.shown(state, Hits(path, state.active, np.array([row])).step(1))

    def subject(self, state: State) -> int:
        """The longest call of the module under the cursor."""
        tree, node = _tree(state), self.node(state)
        return int(tree.row[node]) if tree and 0 <= node < len(tree.times) else -1

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        return (Pane(BELOW, self._about(state)),)

    def follow(self, before: State, state: State) -> State:
        """More of the trace has another tree."""
        now = before.list_of(self.name)
        return state.with_list(self.name, replace(now, cursor=0, top=0, opened=None))

    def copied(self, state: State) -> str:
        """The path of the module under the cursor."""
        tree, node = _tree(state), self.node(state)
        named = tree is not None and 0 <= node < len(tree.times)
        return names_text([tree.times[node].path]) if tree and named else ""

    def _about(self, state: State) -> TextPicture:
        glyphs, tree, node = glyphs_for(state.ascii_only), _tree(state), self.node(state)

        def lines(width: int, height: int) -> list[Said]:
            named = tree is not None and 0 <= node < len(tree.times)
            return about(tree.times[node], width) if tree and named else []

        return ruled((tree, node), "", glyphs.rule, lines)


class Units(NamedTuple):
    """Of the columns of times."""

    gpu: Unit
    own: Unit
    cpu: Unit


@lru_cache(maxsize=4)
def units_of(tree: ModuleTree) -> Units:
    """One for each column."""
    own = (time.gpu_self_ns if tree.gpu_ns else time.cpu_self_ns for time in tree.times)
    return Units(unit_of([tree.gpu_ns]), unit_of(own), unit_of(time.cpu_ns for time in tree.times))


@lru_cache(maxsize=4)
def whole_of(tree: ModuleTree) -> int:
    """What the shares are of: GPU time, in a trace without any the CPU time of the outermost."""
    return tree.gpu_ns or sum(time.cpu_ns for time in tree.times if not time.level)


def columns_of(tree: ModuleTree) -> tuple[Column, ...]:
    """Shares and self times are those of the GPU, in a trace without GPU events of the CPU."""
    units = units_of(tree)
    gpu, cpu = (0, 100) if tree.gpu_ns else (NEVER, 0)
    return (
        Column(f"GPU {units.gpu.name}", 9, from_width=gpu),
        Column("share", 6),
        Column("", BAR, left=True, from_width=70),
        Column(f"self {units.own.name}", 9),
        Column("kernels", 7, from_width=gpu),
        Column("calls", 6, from_width=90 if tree.gpu_ns else 0),
        Column(f"CPU {units.cpu.name}", 9, from_width=cpu),
        Column("module", 0, left=True),
    )


def _tree(state: State) -> ModuleTree | None:
    answer = state.side.insight.answer
    return answer.modules if answer else None


def about(time: ModuleTime, width: int) -> list[Said]:
    """The whole path, and the figures that have no column."""
    calls, cpu, own = plural(time.count, "call"), duration(time.cpu_ns), duration(time.cpu_self_ns)
    parts = [f"{calls} on the CPU: {cpu}, {own} of it self"]
    if time.gpu_backward_ns:
        forward = duration(time.gpu_ns - time.gpu_backward_ns)
        parts.append(f"GPU forward {forward}, backward {duration(time.gpu_backward_ns)}")
    elif time.gpu_ns:
        parts.append(f"{duration(time.gpu_ns // max(1, time.count))} of GPU time a call")
    return [Said(narrow(time.path), "name"), *map(Said, flow(parts, width))]


def format_node(
    tree: ModuleTree, node: int, is_open: bool, glyphs: Glyphs, width: int
) -> list[Styled]:
    """One line of the tree."""
    if node >= len(tree.times):
        return _nowhere(tree, tree.none[node - len(tree.times)], glyphs, width)
    time, units, whole = tree.times[node], units_of(tree), whole_of(tree)
    on_gpu, on_cpu = (time.gpu_ns, time.gpu_self_ns), (time.cpu_ns, time.cpu_self_ns)
    part, own = on_gpu if tree.gpu_ns else on_cpu
    has_inner = int(tree.end[node]) > node + 1
    mark = (glyphs.unfolded if is_open else glyphs.folded) if has_inner else glyphs.leaf
    return _line(
        tree,
        (
            units.gpu.text(time.gpu_ns) if time.gpu_ns else "",
            percent(part, whole) if part else "",
            share_bar(part, whole, BAR, glyphs),
            units.own.text(own) if own else "",
            count(time.kernels) if time.kernels else "",
            count(time.count),
            units.cpu.text(time.cpu_ns),
            f"{'  ' * time.level}{mark} {narrow(time.module)}",
        ),
        width,
        is_faint=False,
    )


def _nowhere(tree: ModuleTree, found: Unclaimed, glyphs: Glyphs, width: int) -> list[Styled]:
    return _line(
        tree,
        (
            units_of(tree).gpu.text(found.gpu_ns),
            percent(found.gpu_ns, tree.gpu_ns),
            share_bar(found.gpu_ns, tree.gpu_ns, BAR, glyphs),
            "",
            count(found.kernels) if found.kernels else "",
            "",
            "",
            f"{glyphs.leaf} {BELONGS_NOWHERE[found.why]}",
        ),
        width,
        is_faint=True,
    )


def _line(tree: ModuleTree, texts: Sequence[str], width: int, is_faint: bool) -> list[Styled]:
    columns = columns_of(tree)
    look = palette.DIM if is_faint else palette.PLAIN
    return [
        (text, look if columns[n].title else palette.BUSY)
        for n, text in zip(shown(columns, width), fit(columns, texts, width), strict=True)
    ]
