"""Reads selected args of events, and the sequence numbers of all events, in one pass
over the document, with several threads.

Decoding a list takes about as long for ten args as for one, so what several answers
need is decoded together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.events import NO_ARGS_OF_STRETCH, Arguments, Events, Wanted
from fusetui.trace.read.autograd import NO_NUMBERS, Autograd, autograd_of, numbers_in
from fusetui.trace.read.elements import StretchArgs, args_in


class Reread(Wanted):
    """The parts may be read in any order, and in several threads."""

    def __init__(
        self,
        events: Events,
        orders: Int64s,
        names: tuple[str, ...],
        numbered: bool = True,
    ) -> None:
        """As of Wanted. Without `numbered`, sequence numbers are not looked for."""
        super().__init__(events, orders, names)
        self.stretches = len(events.stretches)
        self._events = events
        self._numbered = numbered

    def part(self, stretch: int) -> StretchArgs:
        """Reads one stretch; blank for what cannot be read any more."""
        first = int(self.firsts[stretch])
        places = self.places(stretch)
        whole = self._events.stretches[stretch]
        answers = args_in(self._events.text, whole, places, self.names, self._numbered)
        if answers is not None:
            places_to_orders = np.array([first, 0, 0])
            from_first = answers.sequence + places_to_orders
            return answers._replace(sequence=from_first)
        args = (
            self._events.args(stretch, places, self.names)
            if places
            else NO_ARGS_OF_STRETCH
        )
        sequence = NO_NUMBERS
        if self._numbered:
            sequence = numbers_in(self._events, whole, first)
        return StretchArgs(args=args, sequence=sequence)

    def args(self, parts: Sequence[StretchArgs]) -> Arguments:
        """From the parts of all stretches, in order."""
        return self.together(part.args for part in parts)

    def autograd(self, parts: Sequence[StretchArgs]) -> Autograd:
        """From the parts of all stretches, in order; the flows, if needed, are read
        now."""
        return autograd_of(self._events, [part.sequence for part in parts])
