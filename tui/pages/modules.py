"""The modules page: the time of the modules and annotations of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.trace.program.modules import ModuleTime, Unclaimed
from fusetui.trace.program.origin import Nowhere
from fusetui.trace.text.figures import count, duration, percent, plural
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.bars import share_bar
from fusetui.tui.drawing.glyphs import Glyphs, glyphs_for
from fusetui.tui.drawing.picture import TextPicture, ruled
from fusetui.tui.drawing.rows import Rows, Styled
from fusetui.tui.drawing.said import Said
from fusetui.tui.layout.columns import Column, fit, titles
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

COLUMNS = (
    Column("GPU", 9),
    Column("share", 6),
    Column("", 10, left=True, from_width=70),
    Column("self", 9),
    Column("kernels", 7),
    Column("calls", 6, from_width=90),
    Column("CPU", 9, from_width=100),
    Column("module", 0, left=True),
)
BAR = COLUMNS[2].width
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
        "? keys",
        "j/k move",
        "Space open",
        "Enter its longest call",
        "1 timeline",
        "5 why",
        "y copy",
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

        return Rows(opened, len(opened.shown), lambda w: titles(COLUMNS, w), row)

    def chosen(self, state: State, index: int) -> State:
        tree = _tree(state)
        node = int(self.opened(state).shown[index])
        if tree is None or node >= len(tree.times):
            return told(state, "this belongs to no module, so there is no call to show")
        path, row = tree.times[node].path, int(tree.row[node])
        return search.shown(state, Hits(path, state.active, np.array([row])).step(1))

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
        lines: list[Said] = []
        if tree is not None and 0 <= node < len(tree.times):
            lines = about(tree.times[node])
        identity = tree, node
        return ruled(identity, "", glyphs.rule, lambda width, height: lines)


def _tree(state: State) -> ModuleTree | None:
    answer = state.side.insight.answer
    return answer.modules if answer else None


def about(time: ModuleTime) -> list[Said]:
    """The whole path, and the figures that have no column."""
    calls, cpu, own = plural(time.count, "call"), duration(time.cpu_ns), duration(time.cpu_self_ns)
    parts = [f"{calls} on the CPU: {cpu}, {own} of it self"]
    if time.gpu_backward_ns:
        forward = duration(time.gpu_ns - time.gpu_backward_ns)
        parts.append(f"GPU forward {forward}, backward {duration(time.gpu_backward_ns)}")
    elif time.gpu_ns:
        parts.append(f"{duration(time.gpu_ns // max(1, time.count))} of GPU time a call")
    return [Said(narrow(time.path), "name"), Said("   ".join(parts))]


def format_node(
    tree: ModuleTree, node: int, is_open: bool, glyphs: Glyphs, width: int
) -> list[Styled]:
    """One line of the tree."""
    if node >= len(tree.times):
        return _nowhere(tree, tree.none[node - len(tree.times)], glyphs, width)
    time = tree.times[node]
    has_inner = int(tree.end[node]) > node + 1
    mark = (glyphs.unfolded if is_open else glyphs.folded) if has_inner else glyphs.leaf
    return _line(
        (
            duration(time.gpu_ns) if time.gpu_ns else "",
            percent(time.gpu_ns, tree.gpu_ns) if time.gpu_ns else "",
            share_bar(time.gpu_ns, tree.gpu_ns, BAR, glyphs),
            duration(time.gpu_self_ns) if time.gpu_self_ns else "",
            count(time.kernels) if time.kernels else "",
            count(time.count),
            duration(time.cpu_ns),
            f"{'  ' * time.level}{mark} {narrow(time.module)}",
        ),
        width,
        is_faint=False,
    )


def _nowhere(tree: ModuleTree, found: Unclaimed, glyphs: Glyphs, width: int) -> list[Styled]:
    return _line(
        (
            duration(found.gpu_ns),
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


def _line(texts: Sequence[str], width: int, is_faint: bool) -> list[Styled]:
    shown = fit(COLUMNS, texts, width)
    look = palette.DIM if is_faint else palette.PLAIN
    styles = [look] * len(shown)
    if len(shown) > len(COLUMNS) - 3:
        styles[2] = palette.BUSY
    return list(zip(shown, styles, strict=True))
