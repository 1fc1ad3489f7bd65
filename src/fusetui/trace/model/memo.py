"""Results that are kept on the object they were computed from, and freed with it: a
cache beside it would keep a closed trace in memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

T = TypeVar("T")

RESULTS, MADE = "_results", "_made"  # where an owner keeps them
MISSING = object()


def memo(most: int = 1) -> Callable[[Function], Function]:
    """Keeps what a function of an owner, which needs a `__dict__`, returned for its
    last `most` other arguments: positional and hashable ones."""

    def kept(make: Function) -> Function:
        @wraps(make)
        def found(owner: object, *asked: Hashable) -> Any:
            results = vars(owner).setdefault(RESULTS, {}).setdefault(make, {})
            # looked up once: another thread may take it away
            value = results.get(asked, MISSING)
            if value is MISSING:
                value = make(owner, *asked)
                for oldest in list(results)[: max(0, len(results) + 1 - most)]:
                    results.pop(oldest, None)
                results[asked] = value
            return value

        return cast("Function", found)

    return kept


def once(owner: object, make: Callable[[Any], T]) -> T:
    """What a function makes of an owner, when it is first asked for."""
    made = kept_on(owner)
    if make not in made:
        made[make] = make(owner)
    found: T = made[make]
    return found


def kept_on(owner: object) -> dict[Hashable, Any]:
    """What was made of an owner by `once`, or elsewhere and is kept here."""
    made: dict[Hashable, Any] = vars(owner).setdefault(MADE, {})
    return made
