"""What a person may choose from: traces, the variants of a run, the guided tour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fusetui.text.printable import without_credentials

JOB = "all ranks"
TOGETHER = 2  # traces of one offer that are opened at once, side by side


class Offer(msgspec.Struct, frozen=True):
    """One line of the list."""

    label: str
    paths: tuple[str, ...]
    about: str = ""  # "": a summary of the trace, which is read for it
    is_tour: bool = False
    is_job: bool = False  # all traces, as the ranks of one job


def offers_of_job(paths: Sequence[str]) -> tuple[Offer, ...]:
    """All of them at once, and each alone."""
    job = Offer(JOB, tuple(paths[:1]), f"{len(paths)} traces: who waits for whom", is_job=True)
    return (job, *offers_of(paths))


def offers_of(paths: Sequence[str]) -> tuple[Offer, ...]:
    """Traces by the names of their files, or by their paths where several have one name."""
    shown = {path: without_credentials(path) for path in paths}
    count = Counter(Path(path).name for path in shown.values())
    names = ((path, Path(shown[path]).name) for path in paths)
    return tuple(Offer(name if count[name] == 1 else shown[path], (path,)) for path, name in names)
