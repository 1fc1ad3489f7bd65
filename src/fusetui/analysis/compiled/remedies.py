"""Finds remedies that avoid compilations, if the failed guards prove them.

| guard that failed at least twice, with different values | remedy |
|---|---|
| the size of one dimension of one tensor | mark_dynamic |
| the sizes of several dimensions or tensors | dynamic=True |
| the value of a number | pass a tensor, or keep it constant |
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from fusetui.analysis.compiled.model import FrequentGuard, Remedy
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.compile_log.log import Compilation

SIZE = lazy_pattern(
    r"tensor '(?P<tensor>[^'\n]{1,500})' size mismatch at index (?P<dimension>[0-9]{1,3})\. "
    r"expected (?P<expected>\S{1,40}), actual (?P<actual>\S{1,40})"
)
SIZE_VALUE = lazy_pattern(
    r"(?P<tensor>[^\n=#]{1,500}?)\.size\(\)\[(?P<dimension>[0-9]{1,3})\] == "
    r"(?P<expected>[0-9]{1,18})\s*(?:#|$)"
)
VALUE = lazy_pattern(
    r"(?P<expression>[^\n=#]{1,500}?) == (?P<value>-?[0-9.e+-]{1,40}|True|False)\s*(?:#|$)"
)
"""`factor == 0.5    # return (x * factor).relu() + 1  # model.py:125 in scaled`"""
NUMBER = lazy_pattern(r"(?<![\w'.\[])-?[0-9]+(?:\.[0-9]+)?(?![\w'\]])")
MIN_FAILURES = 2
"""Of a guard: a first change of a size makes torch compile for any size by itself, so
that a second one proves that this does not happen."""
MAX_GUARD_CHARS = 500


class _FailedSize(msgspec.Struct, frozen=True):
    """A dimension of a tensor whose size failed a guard."""

    function: str
    tensor: str
    dimension: int

    def __hash__(self) -> int:
        return hash((self.function, self.tensor, self.dimension))


def list_frequent_guards(
    compilations: Iterable[Compilation],
) -> tuple[FrequentGuard, ...]:
    """List the guards that failed in at least two compilations, the most frequent
    first.

    A guard is a condition under which compiled code may be reused, such as the size of
    a tensor. Of each compilation only the newest entry of the cache counts, as the call
    would have used that one.
    """
    counts: Counter[tuple[str, str]] = Counter()  # by function and text
    for compilation in compilations:
        if compilation.guards:
            newest = compilation.guards[0]
            counts[compilation.function, pattern_of(newest.guard)] += 1

    frequent = []
    for (function, text), count in counts.items():
        if count >= MIN_FAILURES:
            guard = FrequentGuard(function=function, text=text, compilations=count)
            frequent.append(guard)

    frequent.sort(key=lambda guard: (-guard.compilations, guard.function, guard.text))
    return tuple(frequent)


def pattern_of(guard: str) -> str:
    """Write a guard without the values that change.

    Each number that is no index becomes `*`, so that guards that differ only in values
    are alike.

    >>> pattern_of("tensor 'x' size mismatch at index 0. expected 4, actual 5")
    "tensor 'x' size mismatch at index 0. expected *, actual *"
    """
    text = guard[:MAX_GUARD_CHARS]
    size = SIZE.search(text)
    if size:
        return (
            f"tensor '{size['tensor']}' size mismatch at index {size['dimension']}. "
            "expected *, actual *"
        )

    # The source code of the guard follows it as a comment.
    condition, _, _ = text.partition("  # ")
    return NUMBER.sub("*", condition).strip()


def find_remedies(compilations: Sequence[Compilation]) -> tuple[Remedy, ...]:
    """List what would avoid compilations, those that avoid most first.

    E.g. mark_dynamic for a dimension whose size was 8, then 16. Only what the guards
    that failed prove is listed. Compilations of backward passes follow those of the
    forward ones, and are left out.

    Args:
        compilations: The compilations of a program; those without a failed guard, as
            the first ones of functions, prove nothing.
    """
    by_function: dict[str, list[Compilation]] = defaultdict(list)
    for compilation in compilations:
        if compilation.guards and not compilation.is_backward:
            by_function[compilation.function].append(compilation)

    remedies: list[Remedy] = []
    for function, compilations_of_function in by_function.items():
        remedies += _find_size_remedies(function, compilations_of_function)
        remedies += _find_value_remedies(function, compilations_of_function)

    remedies.sort(key=lambda remedy: (-remedy.compilations, remedy.function))
    return tuple(remedies)


def _find_size_remedies(
    function: str, compilations: Sequence[Compilation]
) -> list[Remedy]:
    """Return the remedy for sizes that changed, if there is one.

    It is mark_dynamic if one dimension of one tensor changed, and dynamic=True if
    several did.

    Args:
        function: The function that was compiled.
        compilations: Its compilations, each with a guard that failed.
    """
    values_of_size = _find_changing_sizes(function, compilations)
    if not values_of_size:
        return []

    if len(values_of_size) == 1:
        size = next(iter(values_of_size))
        values = values_of_size[size]
        mark_dynamic = Remedy(
            kind="mark_dynamic",
            function=function,
            subject=size.tensor,
            dimension=size.dimension,
            values=tuple(dict.fromkeys(values)),
            compilations=len(values),
        )
        return [mark_dynamic]

    tensors = dict.fromkeys(size.tensor for size in values_of_size)  # each once
    dynamic = Remedy(
        kind="dynamic",
        function=function,
        subject=", ".join(tensors),
        dimension=None,
        values=(),
        compilations=sum(len(values) for values in values_of_size.values()),
    )
    return [dynamic]


def _find_changing_sizes(
    function: str, compilations: Sequence[Compilation]
) -> dict[_FailedSize, list[str]]:
    """Return the sizes of tensors for which guards failed with different values.

    Args:
        function: The function that was compiled.
        compilations: Its compilations, each with a guard that failed.

    Returns:
        For each size the values with which guards failed, such as ["8", "16"], in
        order; sizes with less than MIN_FAILURES different values are left out.
    """
    values_of_size: dict[_FailedSize, list[str]] = defaultdict(list)
    for compilation in compilations:
        # The newest entry of the cache, which the call would have used.
        guard = compilation.guards[0].guard
        mismatch = SIZE.search(guard)
        equation = SIZE_VALUE.match(guard)
        if mismatch:
            match, value = mismatch, mismatch["actual"]
        elif equation:
            match, value = equation, equation["expected"]
        else:
            continue

        size = _FailedSize(
            function=function,
            tensor=match["tensor"],
            dimension=int(match["dimension"]),
        )
        values_of_size[size].append(value.rstrip(".,"))

    return {
        size: values
        for size, values in values_of_size.items()
        if len(set(values)) >= MIN_FAILURES
    }


def _find_value_remedies(
    function: str, compilations: Sequence[Compilation]
) -> list[Remedy]:
    """Return a remedy for each number whose value changed: to make it a constant.

    Args:
        function: The function that was compiled.
        compilations: Its compilations, each with a guard that failed.
    """
    values_of_expression: dict[str, list[str]] = defaultdict(list)
    for compilation in compilations:
        # The newest entry of the cache, which the call would have used.
        guard = compilation.guards[0].guard
        match = VALUE.match(guard)
        is_of_size = SIZE_VALUE.match(guard) is not None
        if match and not is_of_size:
            expression = match["expression"].strip()
            values_of_expression[expression].append(match["value"])

    remedies = []
    for expression, values in values_of_expression.items():
        distinct_values = tuple(dict.fromkeys(values))
        if len(distinct_values) >= MIN_FAILURES:
            remedy = Remedy(
                kind="constant",
                function=function,
                subject=expression,
                dimension=None,
                values=distinct_values,
                compilations=len(values),
            )
            remedies.append(remedy)
    return remedies
