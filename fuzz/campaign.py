"""A run of many inputs: what became of them, and the smallest form of each failure."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count as numbers_from
from itertools import islice
from pathlib import Path

from fuzz.trial import Outcome, outcomes

EVERY = 60.0  # seconds between two lines about how far it is
BATCH = 1000  # inputs that one process tries


@dataclass(frozen=True)
class Kind:
    """One kind of inputs, each of which has a number."""

    name: str
    attempt: Callable[[int, int], str]  # (seed, number) -> what became of it
    # a failed one in its smallest form, as a file
    save: Callable[[int, int, str, Path], Path]
    batch: int = BATCH


@dataclass(frozen=True)
class Plan:
    seed: int
    count: int | None  # inputs; None: without end
    seconds: float | None
    jobs: int
    first: int = 0  # number of the first input


@dataclass
class Result:
    seconds: float = 0
    counts: Counter[str] = field(default_factory=Counter)
    failed: dict[str, list[Outcome]] = field(default_factory=dict)

    def __str__(self) -> str:
        tried = self.counts.total() + sum(map(len, self.failed.values()))
        kinds = ", ".join(
            f"{count} {what}" for what, count in self.counts.most_common()
        )
        failed = sum(map(len, self.failed.values()))
        return f"{tried} inputs in {self.seconds:.0f} s: {failed} failed, {kinds}"


def run(kind: Kind, plan: Plan) -> Result:
    """Try all inputs; says once a minute how far it is."""
    result, begin = Result(), time.monotonic()
    told = begin
    for outcome in _until_interrupted(_outcomes(kind, plan)):
        now = time.monotonic()
        result.seconds = now - begin
        if outcome.failed:
            result.failed.setdefault(outcome.what, []).append(outcome)
            say(f"{kind.name} {plan.seed}/{outcome.number}: {outcome.what}")
        else:
            result.counts[outcome.what] += 1
        if now - told > EVERY:
            told = now
            say(str(result))
        if plan.seconds is not None and result.seconds > plan.seconds:
            break
    return result


def write_row(kind: Kind, plan: Plan, result: Result, page: Path) -> None:
    """Puts the outcome in the place of the line of this kind in a table of the page."""
    failed = sum(map(len, result.failed.values()))
    tried = result.counts.total() + failed
    became = ", ".join(
        f"{count:,} {what}" for what, count in result.counts.most_common()
    )
    row = f"| `{kind.name}` | {tried:,} | {plan.seed} | {failed} | {became} |"
    line = re.compile(rf"^\| `{kind.name}` \|.*$", re.MULTILINE)
    text, found = line.subn(row, page.read_text(encoding="utf-8"), count=1)
    if not found:
        raise ValueError(f"{page}: no line for `{kind.name}`")
    page.write_text(text, encoding="utf-8")


def _until_interrupted(outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
    with suppress(KeyboardInterrupt):
        yield from outcomes


def _outcomes(kind: Kind, plan: Plan) -> Iterator[Outcome]:
    numbers = islice(numbers_from(plan.first), plan.count)
    return outcomes(
        numbers, lambda n: kind.attempt(plan.seed, n), plan.jobs, kind.batch
    )


def save_failures(kind: Kind, plan: Plan, result: Result, folder: Path) -> None:
    """One file of each failure, as small as it gets."""
    folder.mkdir(parents=True, exist_ok=True)
    for what, found in result.failed.items():
        say(
            f"\n{what} ({len(found)} times, first {plan.seed}/{found[0].number})\n{found[0].text}"
        )
        name = re.sub(r"\W+", "-", what).strip("-")[:60]
        place = folder / f"{kind.name}-{name}-{plan.seed}-{found[0].number}"
        say(f"kept as {kind.save(plan.seed, found[0].number, what, place)}")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
