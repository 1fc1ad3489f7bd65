"""The open dumps, and which of their collectives the page shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from fusetui.analysis.hang.model import Call, CallState, GroupProgress, Mismatch, Wait
from fusetui.trace.flight.columns import UNKNOWN

if TYPE_CHECKING:
    from fusetui.analysis.hang.grid import CollectiveGrid

LETTERS = {
    CallState.NOT_ISSUED: " ",
    CallState.MISSING: "!",
    CallState.UNKNOWN: "?",
    CallState.SCHEDULED: "s",
    CallState.STARTED: "r",
    CallState.OVER: ".",
    CallState.OTHER: "o",
}
TOKENS = {
    CallState.NOT_ISSUED: "plain",
    CallState.MISSING: "bad",
    CallState.UNKNOWN: "faint",
    CallState.SCHEDULED: "warning",
    CallState.STARTED: "warning",
    CallState.OVER: "good",
    CallState.OTHER: "warning",
}
LEGEND = ". over  s scheduled  r running  ! missing  A B differ  ? not known"
SIDES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # of a mismatch, the largest first
MARK_EVERY = 10  # columns of the grid that have their number above them


class HangShown(msgspec.Struct, frozen=True, eq=False):
    """The dumps of a job, and where the page is in them.

    `group`: the index of the group that is shown; `number`: of the collective that is
    selected; `left`: of the collective in the first column.
    """

    paths: tuple[str, ...]
    grid: CollectiveGrid
    group: int = 0
    number: int = 1
    left: int = 1

    @property
    def progress(self) -> GroupProgress:
        return self.grid.groups[self.group]

    def at(self, number: int) -> HangShown:
        """The nearest collective of the group is selected."""
        return replace(self, number=self.grid.numbers(self.group).nearest(number))

    def in_group(self, group: int) -> HangShown:
        """The newest collective of another group, or the one that ranks wait in."""
        numbers = self.grid.numbers(group)
        return replace(self, group=group, number=numbers.last, left=numbers.first)

    def columns(self, width: int) -> range:
        """The numbers of the collectives in sight, in `width` columns."""
        return range(
            self.left, min(self.left + width, self.grid.numbers(self.group).last + 1)
        )

    def in_sight(self, width: int) -> HangShown:
        """Scrolled sideways as little as possible, so that the selected collective is
        in one of `width` columns."""
        first = self.grid.numbers(self.group).first
        smallest_left = max(first, self.number - width + 1)
        left = max(smallest_left, min(self.left, self.number))
        return self if left == self.left else replace(self, left=left)


def first_view(paths: Sequence[str], grid: CollectiveGrid) -> HangShown:
    """With the collective selected that the answer is about: the one that the first
    culprit lacks, or that ranks issued differently, or that somebody waits in."""
    shown = HangShown(paths=tuple(paths), grid=grid)
    if not grid.groups:
        return shown
    reason = _collective_of_reason(grid)
    if reason is None:
        return shown.in_group(0)
    return shown.in_group(grid.index_of(reason.group)).at(reason.sequence)


def rank_of_reason(grid: CollectiveGrid) -> int:
    """The rank that the answer is about; UNKNOWN where it names none."""
    answer = grid.answer
    if answer.verdict == "mismatch":
        smallest_side = answer.open_mismatches_first[0].sides[-1]
        return smallest_side.ranks[0]
    if answer.culprits:
        return answer.culprits[0].rank
    if answer.cycle:
        return answer.cycle[0]
    return answer.waits[0].waiting[0] if answer.waits else UNKNOWN


def _collective_of_reason(grid: CollectiveGrid) -> Mismatch | Wait | None:
    """The collective that the answer is about; None where nobody waits in one. A message
    is no collective."""
    answer = grid.answer
    if answer.verdict == "mismatch":
        return answer.open_mismatches_first[0]
    culprit = answer.culprits[0] if answer.culprits else None
    waits = [wait for wait in answer.waits if not wait.is_p2p]
    for wait in waits:
        lacking = (*wait.without_dump, *wait.lacking)
        if culprit is not None and culprit.rank in lacking:
            return wait
    return waits[0] if waits else None


def letter(call: Call) -> str:
    """One character: of a mismatch the side, else how far the call came."""
    if call.side != UNKNOWN:
        return SIDES[min(call.side, len(SIDES) - 1)]
    return LETTERS[call.state]


def token(call: Call) -> str:
    """The color of the letter."""
    return "bad" if call.side != UNKNOWN else TOKENS[call.state]


def ruler(numbers: range, selected: int) -> str:
    """The numbers above the columns, each beginning at its own: the selected one, and
    the first and every tenth where there is room for their digits."""
    marked = [selected, *numbers[:1]]
    marked += [number for number in numbers if number % MARK_EVERY == 0]
    line = " " * (len(numbers) + len(str(selected)))
    for number in marked:
        begin = number - numbers.start
        digits = str(number)
        end = begin + len(digits)
        around = line[max(0, begin - 1) : end + 1]
        if number in numbers and end <= len(line) and around.isspace():
            line = f"{line[:begin]}{digits}{line[end:]}"
    return line.rstrip()
