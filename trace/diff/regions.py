"""Groups what no rule pairs, by the sort of work in one part of the program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from fusetui.trace.diff.groups import Group
from fusetui.trace.diff.items import Items
from fusetui.trace.diff.sorts import OTHER, sorts
from fusetui.trace.diff.where import phases, places
from fusetui.trace.model.op_names import is_compiler

Key = tuple[str, ...]


class Program:
    """Per item of a side: its sort of work, its phase, and the module or annotation around it."""

    def __init__(self, items: Items) -> None:
        self.items = items
        self.sorts = sorts(items)
        self.phases = phases(items)
        self.places = places(items)

    def compiled(self, item: int) -> bool:
        """Whether a region that torch.compile made launched it."""
        op = self.items.op_names[item]
        return is_compiler(op) or op.startswith(("triton_", "cpp_fused", "graph_"))

    def known(self, item: int) -> bool:
        """Whether it comes from an op of the program, not from a compiled region or a graph."""
        return self.items.op_word(item) > 0


def by_region(a: Program, b: Program, groups: Sequence[Group]) -> list[Group]:
    """Joins open work of one sort on both sides, in the same place, then in the same phase, then
    anywhere, where a side does not say which ops its kernels come from.

    Ops that both sides know, but without a partner, were added or removed.
    """
    found = list(groups)
    for level in (_place, _phase, _anywhere):
        found = _joined(a, b, found, level)
    return found


Level = Callable[[Program, int], Key]


def _place(program: Program, item: int) -> Key:
    return program.phases[item], program.places[item]


def _phase(program: Program, item: int) -> Key:
    return (program.phases[item],)


def _anywhere(program: Program, item: int) -> Key:
    return ()


def _joined(a: Program, b: Program, groups: list[Group], level: Level) -> list[Group]:
    open_items: defaultdict[Key, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for group in groups:
        if not (group.a and group.b):
            side, program = (0, a) if group.a else (1, b)
            item = (group.a or group.b)[0]
            if program.sorts[item] != OTHER:
                open_items[*level(program, item), program.sorts[item]][side].append(item)
    taken: tuple[set[int], set[int]] = (set(), set())
    joined = []
    for key, (of_a, of_b) in open_items.items():
        if of_a and of_b and not (all(map(a.known, of_a)) and all(map(b.known, of_b))):
            where = next((word for word in key[-2::-1] if word), "")
            why = f"all {key[-1]} left in {where}" if where else f"all {key[-1]} left"
            joined.append(Group(tuple(of_a), tuple(of_b), why, together=True))
            taken[0].update(of_a)
            taken[1].update(of_b)
    return [g for g in groups if not _is_taken(g, taken)] + joined


def _is_taken(group: Group, taken: tuple[set[int], set[int]]) -> bool:
    if group.a and group.b:
        return False
    return group.a[0] in taken[0] if group.a else group.b[0] in taken[1]
