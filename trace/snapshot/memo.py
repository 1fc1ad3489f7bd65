"""What a pickle refers to by number, and how much its objects may take."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from fusetui.trace.model.arrays import Int32s, Int64s
from fusetui.trace.snapshot.tables import Stack, Wrong

LEAST, SHARE = 128 << 20, 4
"""All objects of a file may take LEAST bytes and SHARE times its size."""
PLACE = 12  # bytes that a number takes, and a thing with it
ROW = -1
"""The code of a dict of which only a row is left; codes above are of things, below of stacks."""


class Memo:
    """Four bytes for each number: the code of what it stands for."""

    def __init__(self, size: int) -> None:
        self.codes = array("i")
        self.things: list[Any] = []
        self.left = LEAST + SHARE * size
        self._shared: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: int) -> Any:
        """Raises Wrong if nothing has this number."""
        if index >= len(self.codes):
            raise Wrong("it refers to what it does not hold")
        return self.thing(self.codes[index])

    def get(self, index: int) -> Any:
        """The thing with this number, if there is one."""
        code = self.codes[index] if index < len(self.codes) else ROW
        return self.things[code] if code > ROW else None

    def thing(self, code: int) -> Any:
        """What a code stands for."""
        if code == ROW:
            raise Wrong("it has one event in two places")
        return self.things[code] if code > ROW else Stack(stack_code(code))

    def put(self, thing: Any) -> None:
        """Gives it the next number."""
        if type(thing) is Stack:
            self.codes.append(stack_code(int(thing)))
        else:
            self.codes.append(len(self.things))
            self.things.append(thing)

    def shared(self, thing: str | tuple[int, ...]) -> int:
        """The code of a text or tuple, the same for all equal ones."""
        if thing not in self._shared:
            self._shared[thing] = len(self.things)
            self.things.append(thing)
        return self._shared[thing]

    def codes_of(self, numbers: Int64s) -> Int32s:
        """The codes of what has these numbers."""
        if len(numbers) and int(numbers.max()) >= len(self.codes):
            raise Wrong("it refers to what it does not hold")
        found: Int32s = np.frombuffer(self.codes, np.int32)[numbers]
        return found

    def take(self, size: int) -> None:
        """Counts bytes that objects take in Python. Raises Wrong if they are too many."""
        self.left -= size
        if self.left < 0:
            raise Wrong("it holds more objects than a snapshot of its size")

    def check(self, beside: int) -> None:
        """As `take`, of what is counted again each time."""
        if self.left < beside + PLACE * len(self.codes):
            self.take(self.left + 1)


def stack_code(number: Any) -> Any:
    """The code of a stack by its number (-1: none), and the other way round."""
    return -3 - number
