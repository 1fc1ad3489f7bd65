"""What a rule is: a question with its threshold, what it needs, and a function that answers it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from fusetui.analysis.why.facts import Facts


class CannotTell(Exception):  # noqa: N818
    """A rule lacks what it needs: what was not recorded, and what records it."""

    def __init__(self, missing: str, record_with: str) -> None:
        super().__init__(missing)
        self.missing = missing
        self.record_with = record_with


LEAST_SHARE = 0.02  # of the span; less is not worth a look
LEAST_OF_BUSY = 0.05
"""Of the time in which the device is busy: a finding about its kernels is worth a look from there
on too, however idle the span is."""


def is_worth(facts: Facts, ns: int, of_kernels: bool) -> bool:
    """Whether so much time is worth a look."""
    least = LEAST_SHARE * facts.span_ns
    if of_kernels:
        least = min(least, LEAST_OF_BUSY * facts.kernels.busy_ns)
    return ns >= max(1, least)


NO_LAUNCHES = CannotTell("launch calls", "ProfilerActivity.CUDA")


class Claim(msgspec.Struct, frozen=True):
    """What a rule says about a trace, before it is decided whether that is worth reporting."""

    text: str
    at_stake_ns: int | None  # an upper bound by the formula of the rule; None: a note
    rows: tuple[int, ...] = ()  # evidence, the largest first
    remedy: str | None = None  # instead of the rule's own
    why_likely: str | None = None  # None: certain
    part_of: str | None = None  # the rule that claims the same time
    is_little: bool = False  # by the rule's own threshold, so that it is no finding


class Rule(msgspec.Struct, frozen=True):
    """One rule; docs/why.md has a page of each, made from these texts."""

    id: str
    title: str
    question: str  # that it answers
    needs: str  # what must have been recorded, at least GPU events; empty for nothing. What
    # follows a semicolon adds to the answer, and without it the rule speaks all the same
    formula: str  # of the time at stake
    remedy: str  # what to try: one line with the torch call or option; see advice
    thresholds: dict[str, float]
    find: Callable[[Facts], Iterable[Claim]]
    """Raises CannotTell."""
    of_kernels: bool = False  # about the work of the device, not about its idle time
    once: bool = False  # about what happens once, however many steps are recorded
    silent: str = ""  # when it says nothing although one might expect it to
