"""What would avoid compilations, only where the guards that failed prove it.

| guard that failed at least twice, with different values | remedy |
|---|---|
| the size of one dimension of one tensor | mark_dynamic |
| the sizes of several dimensions or tensors | dynamic=True |
| the value of a number | pass a tensor, or keep it constant |
"""

from __future__ import annotations

from collections import defaultdict
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
    function: str
    tensor: str
    dimension: int

    def __hash__(self) -> int:
        return hash((self.function, self.tensor, self.dimension))


def frequent_guards(compilations: Iterable[Compilation]) -> tuple[FrequentGuard, ...]:
    """The guards that failed in at least two compilations, the most frequent first. Of
    each compilation the newest entry of the cache counts: it is the one that the call
    would have used."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for one in compilations:
        if one.guards:
            counts[one.function, pattern_of(one.guards[0].guard)] += 1
    guards = [
        FrequentGuard(function=function, text=text, compilations=count)
        for (function, text), count in counts.items()
        if count >= MIN_FAILURES
    ]
    guards.sort(key=lambda guard: (-guard.compilations, guard.function, guard.text))
    return tuple(guards)


def pattern_of(guard: str) -> str:
    """A guard without the values that change: `*` for numbers that are no index.

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
    return NUMBER.sub("*", text.partition("  # ")[0]).strip()


def remedies_for(compilations: Sequence[Compilation]) -> tuple[Remedy, ...]:
    """The remedies that these compilations prove, those that avoid most first."""
    by_function: dict[str, list[Compilation]] = defaultdict(list)
    for one in compilations:
        if one.guards and not one.is_backward:
            by_function[one.function].append(one)
    remedies: list[Remedy] = []
    for function, some in by_function.items():
        remedies += _of_sizes(function, some)
        remedies += _of_values(function, some)
    remedies.sort(key=lambda remedy: (-remedy.compilations, remedy.function))
    return tuple(remedies)


def _of_sizes(function: str, compilations: Sequence[Compilation]) -> list[Remedy]:
    """mark_dynamic for one dimension, dynamic=True for several."""
    sizes: dict[_FailedSize, list[str]] = defaultdict(list)
    for one in compilations:
        guard = one.guards[0].guard
        size = SIZE.search(guard) or SIZE_VALUE.match(guard)
        if size:
            value = size["actual"] if size.re.groups > 3 else size["expected"]
            failed = _FailedSize(
                function=function,
                tensor=size["tensor"],
                dimension=int(size["dimension"]),
            )
            sizes[failed].append(value.rstrip(".,"))
    several = {
        failed: values
        for failed, values in sizes.items()
        if len(set(values)) >= MIN_FAILURES
    }
    if len(several) == 1:
        failed, values = next(iter(several.items()))
        return [
            Remedy(
                kind="mark_dynamic",
                function=function,
                subject=failed.tensor,
                dimension=failed.dimension,
                values=tuple(dict.fromkeys(values)),
                compilations=len(values),
            )
        ]
    if not several:
        return []
    return [
        Remedy(
            kind="dynamic",
            function=function,
            subject=", ".join(dict.fromkeys(failed.tensor for failed in several)),
            dimension=None,
            values=(),
            compilations=sum(map(len, several.values())),
        )
    ]


def _of_values(function: str, compilations: Sequence[Compilation]) -> list[Remedy]:
    """A constant for each number whose value failed."""
    values: dict[str, list[str]] = defaultdict(list)
    for one in compilations:
        guard = one.guards[0].guard
        value = VALUE.match(guard)
        if value and not SIZE_VALUE.match(guard):
            values[value["expression"].strip()].append(value["value"])
    return [
        Remedy(
            kind="constant",
            function=function,
            subject=expression,
            dimension=None,
            values=tuple(dict.fromkeys(some)),
            compilations=len(some),
        )
        for expression, some in values.items()
        if len(set(some)) >= MIN_FAILURES
    ]
