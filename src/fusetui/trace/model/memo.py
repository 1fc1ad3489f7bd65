"""Results cached on the object from which they were computed.

The object, most often a Trace, is the owner. Its results are freed with it; a cache
beside it would keep a closed trace in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])
Arguments = tuple[Hashable, ...]

ATTRIBUTE = "_results"  # of an owner: a dict from a key to results by their arguments
MISSING = object()


def memo(max_results: int = 1) -> Callable[[Function], Function]:
    """A decorator for functions whose first argument is an owner.

    A call returns the result of an earlier call with equal arguments, if it is still
    kept: each owner keeps the `max_results` newest results of each function. An owner
    needs a `__dict__`; the other arguments must be hashable and are passed by position.
    What the function raises is not kept.

        @memo()
        def steps_of(trace: Trace) -> Steps: ...
    """

    def decorate(function: Function) -> Function:
        """The function with a memo."""

        @wraps(function)
        def with_memo(owner: object, *arguments: Hashable) -> Any:
            """The kept result of these arguments, or that of the function."""
            results = _results_of(owner, key=with_memo)
            # one lookup, because another thread may remove the result after a test
            result = results.get(arguments, MISSING)
            if result is MISSING:
                result = function(owner, *arguments)
                _keep_newest(results, arguments, result, max_results)
            return result

        return cast("Function", with_memo)

    return decorate


def kept_result(owner: object, key: Hashable) -> Any:
    """A result that is known already; None if there is none. Computes nothing.

    `key` is a function with `memo` whose only argument is the owner, or whatever else
    was given to `keep_result`.
    """
    return _results_of(owner, key).get(())


def keep_result(owner: object, key: Hashable, result: object) -> None:
    """Keeps a result that was computed elsewhere, for instance by another process.

    If `key` is a function with `memo` whose only argument is the owner, its calls
    return this result from now on. With any other key only `kept_result` returns it.
    """
    _keep_newest(_results_of(owner, key), (), result, max_results=1)


def _results_of(owner: object, key: Hashable) -> dict[Arguments, Any]:
    """The kept results of one key on an owner, by the arguments after the owner, oldest
    first."""
    by_key: dict[Hashable, dict[Arguments, Any]]
    by_key = vars(owner).setdefault(ATTRIBUTE, {})
    return by_key.setdefault(key, {})


def _keep_newest(
    results: dict[Arguments, Any],
    arguments: Arguments,
    result: object,
    max_results: int,
) -> None:
    """Keep a result, and remove the oldest ones beyond `max_results`."""
    if arguments not in results:
        surplus = len(results) + 1 - max_results
        for oldest in list(results)[: max(0, surplus)]:
            results.pop(oldest, None)
    results[arguments] = result
