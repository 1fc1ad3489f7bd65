"""The types of the `--json` documents, from which the schemas are generated;
docs/json.md describes the keys.

Answers that are documents as they are (a summary, functions) have no type of their own
here.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from fusetui.analysis.questions.launches import GraphReplay, QueueLength, ThreadLaunches
from fusetui.gpu.kernel_names.record import DecodedName
from fusetui.trace.program.modules import Modules
from fusetui.trace.program.origin import PhaseTime


class ModulesDocument(Modules, frozen=True):
    """`modules`."""

    phases: tuple[PhaseTime, ...]


class LaunchesDocument(msgspec.Struct, frozen=True):
    """`launches`; starts are relative to `base_ns`."""

    base_ns: str
    threads: tuple[ThreadLaunches, ...]
    graphs: tuple[GraphReplay, ...]
    queues: tuple[QueueLength, ...]


class NamesDocument(msgspec.Struct, frozen=True):
    """`decode`."""

    names: list[DecodedName]


class GuessDocument(msgspec.Struct, frozen=True):
    """One term of an expectation."""

    kind: str
    expected: int
    found: tuple[int, ...]
    right: bool


class CheckDocument(msgspec.Struct, frozen=True):
    """`check`."""

    per: Literal["step", "trace"]
    steps: list[str]
    counted: Literal["kernels", "cpu_ops"]
    right: bool
    guesses: list[GuessDocument]


class SampleDocument(msgspec.Struct, frozen=True):
    """A trace that ships with fusetui."""

    name: str
    shows: str


class SamplesDocument(msgspec.Struct, frozen=True):
    """`samples`."""

    samples: list[SampleDocument]
    lessons: list[SampleDocument]
