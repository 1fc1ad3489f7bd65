"""Guesses such as `kernels=5 gemm=3 pointwise=2`, compared with what a step really ran.

Parsing and comparing are pure functions and do not need torch. The kinds are defined in
`gpu.kinds`, the counting in `analysis.questions.tally`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fusetui.analysis.questions.computing import Tallies
from fusetui.gpu.kinds import KINDS

from .errors import CaptureError

_TERM = re.compile(r"([a-z_]+)=(\d+)\Z")
_FOR_VARIANT = re.compile(r"\s*([\w.-]+)\s*:")


@dataclass(frozen=True)
class Guess:
    """One term of a guess and what was found: a number per step, or one for a whole trace."""

    kind: str
    expected: int
    found: tuple[int, ...]

    @property
    def right(self) -> bool:
        """Whether the guess is right, for every step."""
        return all(count == self.expected for count in self.found)

    @property
    def said(self) -> str:
        """What was found: one number, or all of them if steps differ."""
        return ", ".join(map(str, self.found if len(set(self.found)) > 1 else self.found[:1]))


def parse(guess: str) -> dict[str, int]:
    """`kernels=5 gemm=3` -> counts by kind. Raises CaptureError for an invalid guess."""
    found: dict[str, int] = {}
    for term in guess.replace(",", " ").split():
        match = _TERM.match(term)
        if term.partition("=")[0] not in KINDS:
            known = ", ".join(sorted(KINDS))
            raise CaptureError(f"'{term}' is not a guess such as gemm=3: use one of {known}.")
        if not match:
            raise CaptureError(f"'{term}' is not a guess: give a whole number, as in gemm=3.")
        found[match[1]] = int(match[2])
    if not found:
        raise CaptureError('The guess is empty: try --expect "kernels=5 gemm=3".')
    return found


def parse_for(guesses: Iterable[str], variants: Sequence[str]) -> dict[str, dict[str, int]]:
    """The guesses of each variant: `gemm=3` applies to all of them, `eager: gemm=3` to one. Raises
    CaptureError for an unknown variant or an invalid guess."""
    found: dict[str, dict[str, int]] = {name: {} for name in variants}
    for guess in guesses:
        match = _FOR_VARIANT.match(guess)
        if match and match[1] not in found:
            raise CaptureError(f"--expect names '{match[1]}', which is not among the variants run.")
        terms = parse(guess[match.end() :] if match else guess)
        for name in [match[1]] if match else variants:
            found[name] |= terms
    return found


def compare(expected: Mapping[str, int], counted: Tallies) -> tuple[Guess, ...]:
    """Every term of a guess, with what was counted."""
    return tuple(Guess(kind, count, counted.found(kind)) for kind, count in expected.items())


def guess_lines(variant: str, guesses: Sequence[Guess]) -> list[str]:
    """`= eager kernels: guess 5, found 5`, with a `!` in front of a wrong guess."""
    return [
        f"{'=' if g.right else '!'} {variant} {g.kind}: guess {g.expected}, found {g.said}"
        for g in guesses
    ]
