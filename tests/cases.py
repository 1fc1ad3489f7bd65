"""Many cases in one test: all of them are tried, and all that fail are reported.

A parametrized test is the better form for a few cases. For hundreds of cheap ones
pytest spends more time on the tests than these take, in each of its processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType


class Cases:
    """Use it around the loop, and `case` around the body:

    with Cases() as cases:
        for number in range(100):
            with cases.case(number):
                assert number < 100
    """

    def __init__(self) -> None:
        self._failures: list[Exception] = []
        self._tried = 0

    def __enter__(self) -> Cases:
        return self

    @contextmanager
    def case(self, *names: object) -> Iterator[None]:
        """Keeps what the block raises, with the names of the case, and goes on."""
        self._tried += 1
        try:
            yield
        except Exception as failure:
            failure.add_note(f"case: {', '.join(map(repr, names))}")
            self._failures.append(failure)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Raises an ExceptionGroup of all failures; AssertionError if no case was
        tried."""
        if error is not None:
            return
        assert self._tried, "no case was tried"
        if self._failures:
            count = f"{len(self._failures)} of {self._tried} cases failed"
            raise ExceptionGroup(count, self._failures)
