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
        """Prepare to read args of events from the file again.

        Args:
            events: The events of the trace.
            orders: The wanted events, by their index in traceEvents.
            names: The names of the wanted args.
            numbered: Whether to read the sequence numbers of all ops too.
        """
        super().__init__(events, orders, names)
        self.stretches = len(events.stretches)
        self._events = events
        self._numbered = numbered

    def part(self, stretch: int) -> StretchArgs:
        """Read the wanted args of one stretch, a range of the file. What cannot be read
        any more is blank."""
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
        """The args of all wanted events, given the parts of all stretches in order."""
        return self.together(part.args for part in parts)

    def autograd(self, parts: Sequence[StretchArgs]) -> Autograd:
        """The autograd numbers of all ops, given the parts of all stretches in order.
        Flows are read now if they are needed."""
        return autograd_of(self._events, [part.sequence for part in parts])
