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
        """The progress of the ranks in the process group that is shown."""
        return self.grid.groups[self.group]

    def at(self, number: int) -> HangShown:
        """Return the page with the collective `number` selected, or the nearest one if
        the group has none with that number."""
        return replace(self, number=self.grid.number_range(self.group).nearest(number))

    def in_group(self, group: int) -> HangShown:
        """Return the page with another process group shown, given its index. Its newest
        collective is selected."""
        numbers = self.grid.number_range(group)
        return replace(self, group=group, number=numbers.last, left=numbers.first)

    def columns(self, width: int) -> range:
        """Return the numbers of the collectives that are visible in `width` columns."""
        return range(
            self.left,
            min(self.left + width, self.grid.number_range(self.group).last + 1),
        )

    def in_sight(self, width: int) -> HangShown:
        """Return the page scrolled sideways, so that the selected collective is in one
        of `width` columns. It scrolls as little as possible."""
        first_number = self.grid.number_range(self.group).first
        smallest_left = max(first_number, self.number - width + 1)
        left = max(smallest_left, min(self.left, self.number))
        return self if left == self.left else replace(self, left=left)


def make_first_view(paths: Sequence[str], grid: CollectiveGrid) -> HangShown:
    """Return the page as it is shown first, with the collective selected that explains
    why the job hangs.

    That is the collective that some rank did not join, that ranks issued differently,
    or in which ranks wait. If the dumps do not tell, it is the newest collective of the
    first group. `paths` are the files of the dumps.
    """
    page = HangShown(paths=tuple(paths), grid=grid)
    if not grid.groups:
        return page
    reason = _find_reported_collective(grid)
    if reason is None:
        return page.in_group(0)
    return page.in_group(grid.index_of(reason.group)).at(reason.sequence)


def find_reported_rank(grid: CollectiveGrid) -> int:
    """Return the rank that the report on a hanging job is about, or UNKNOWN if it names
    none.

    In a mismatch it is a rank of the smallest group that issued another collective.
    Otherwise it is a rank that others wait for, one in a cycle of waits, or one that
    waits.
    """
    answer = grid.answer
    if answer.verdict == "mismatch":
        smallest_side = answer.open_mismatches_first[0].sides[-1]
        return smallest_side.ranks[0]
    if answer.culprits:
        return answer.culprits[0].rank
    if answer.cycle:
        return answer.cycle[0]
    return answer.waits[0].waiting[0] if answer.waits else UNKNOWN


def _find_reported_collective(grid: CollectiveGrid) -> Mismatch | Wait | None:
    """Return the mismatch or wait that the report on a hanging job is about; None if
    nobody waits in a collective.

    A wait that the first culprit (a rank that others wait for) has not joined comes
    before other waits. Waits for a message from one rank to another are no collectives,
    and are ignored.
    """
    answer = grid.answer
    if answer.verdict == "mismatch":
        return answer.open_mismatches_first[0]
    culprit = answer.culprits[0] if answer.culprits else None
    collective_waits = [wait for wait in answer.waits if not wait.is_p2p]
    for wait in collective_waits:
        missing_ranks = (*wait.without_dump, *wait.lacking)
        if culprit is not None and culprit.rank in missing_ranks:
            return wait
    return collective_waits[0] if collective_waits else None


def choose_letter(call: Call) -> str:
    """Return one character for a call of a collective: its side (A, B, ...) in a
    mismatch, else how far it got."""
    if call.side != UNKNOWN:
        return SIDES[min(call.side, len(SIDES) - 1)]
    return LETTERS[call.state]


def token(call: Call) -> str:
    """Return the style for the letter of a call: "bad" in a mismatch, else one for how
    far the call got."""
    return "bad" if call.side != UNKNOWN else TOKENS[call.state]


def ruler(numbers: range, selected: int) -> str:
    """Return the line of numbers above the columns of collectives, each beginning at
    its own column.

    The selected number always comes first, then the first and every tenth number where
    there is room. Numbers are never cut, and have a blank between them.
    """
    marked = [selected, *numbers[:1]]
    marked += [number for number in numbers if number % MARK_EVERY == 0]
    line = " " * (len(numbers) + len(str(selected)))
    for number in marked:
        first_column = number - numbers.start
        digits = str(number)
        end_column = first_column + len(digits)
        # its digits, with a blank before and behind them
        needed_cells = line[max(0, first_column - 1) : end_column + 1]
        if number in numbers and end_column <= len(line) and needed_cells.isspace():
            line = f"{line[:first_column]}{digits}{line[end_column:]}"
    return line.rstrip()
