"""Keys that a person presses before there is a trace to act on: they wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from textual._xterm_parser import XTermParser
from textual.events import Key

from fusetui.tui import registry
from fusetui.tui.state.state import State

TEXTS = ("search", "command")
"""Actions after which a text is typed."""
ENTER = "ctrl+j"
"""What Enter is while the terminal is not yet the app's."""


class Early:
    """The keys that wait."""

    def __init__(self, typed: str) -> None:
        """`typed`: what was read from the terminal before the app began."""
        found = XTermParser().feed(typed) if typed else ()
        self._keys = [event for event in found if isinstance(event, Key)]

    def take(self, event: Key, state: State) -> bool:
        """Keeps a key that nothing can be done with yet; returns whether it does."""
        if not is_starting(state) or registry.always(event.key, state):
            return False
        action = registry.action_for(event.key, state)
        waits = self._is_text(state) or action is None or bool(action.needs(state))
        if waits:
            self._keys.append(event)
        return waits

    def all(self) -> Iterator[Key]:
        """The keys in order, each once; none of them waits afterwards."""
        keys, self._keys = self._keys, []
        return iter(keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def _is_text(self, state: State) -> bool:
        """Whether what is pressed now may belong to a text."""
        begun = (registry.action_for(event.key, state) for event in self._keys)
        return any(action is not None and action.name in TEXTS for action in begun)


def is_starting(state: State) -> bool:
    """Whether the first trace is being read, and nothing of it is shown."""
    return state.reading is not None and not state.sides and state.overlay is None


def as_pressed(event: Key, state: State) -> Key:
    """Enter that was pressed before the terminal was the app's, as what it was."""
    if event.key == ENTER and registry.action_for(ENTER, state) is None:
        return Key("enter", "\r")
    return event
