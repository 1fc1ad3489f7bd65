"""What --json prints, as types: schemas are made from them, and docs/json.md describes the keys.

Answers that are documents as they are (a summary, functions) have no type of their own here.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from fusetui.analysis.questions.launches import QueueLength, Replay, ThreadLaunches
from fusetui.gpu.kernel_names.record import DecodedName, KernelName
from fusetui.trace.model.ids import Id
from fusetui.trace.program.modules import Modules
from fusetui.trace.program.origin import PhaseTime


class GroupDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What identifies a group of kernels or ops, whichever it is grouped by; then its durations."""

    name: str | UnsetType = UNSET
    op: str | UnsetType | None = UNSET
    shapes: list[Any] | UnsetType | None = UNSET
    dtypes: list[Any] | UnsetType | None = UNSET
    module: str | UnsetType | None = UNSET
    family: str | UnsetType | None = UNSET
    device: Id | UnsetType = UNSET
    stream: Id | UnsetType = UNSET
    step: str | UnsetType | None = UNSET
    captured: bool | UnsetType = UNSET
    count: int
    total_ns: int
    mean_ns: int
    min_ns: int
    p10_ns: int
    median_ns: int
    p90_ns: int
    max_ns: int


class KernelDocument(GroupDocument, frozen=True, kw_only=True):
    """A group of kernels; `decoded` only of one name."""

    effective_ns: int
    flop: float | None
    flop_ns: int
    bytes: float | None
    bytes_ns: int
    share_of_peak: float | None
    share_of_peak_effective: float | None
    share_ns: int
    bound: Literal["compute", "memory"] | None
    waves: float | None
    decoded: KernelName | UnsetType | None = UNSET


class OpDocument(GroupDocument, frozen=True, kw_only=True):
    """A group of ops; `total_ns` is without those inside another one of the group."""

    self_ns: int
    gpu_ns: int
    kernels: int


class DeviceDocument(msgspec.Struct, frozen=True):
    """A device with its peaks by kind, per second: FLOP, and bytes of `bandwidth`."""

    device: Id
    name: str | None
    peaks: dict[str, int] | None
    given: list[str]


class KernelsDocument(msgspec.Struct, frozen=True):
    """`kernels`."""

    by: Literal["name", "op", "shape", "module", "family", "stream", "step"]
    devices: list[DeviceDocument]
    kernels: list[KernelDocument]


class OpsDocument(msgspec.Struct, frozen=True):
    """`ops`."""

    by: Literal["name", "shape"]
    ops: list[OpDocument]


class ModulesDocument(Modules, frozen=True):
    """`modules`."""

    phases: tuple[PhaseTime, ...]


class LaunchesDocument(msgspec.Struct, frozen=True):
    """`launches`; starts are relative to `base_ns`."""

    base_ns: str
    threads: tuple[ThreadLaunches, ...]
    graphs: tuple[Replay, ...]
    queues: tuple[QueueLength, ...]


class NamesDocument(msgspec.Struct, frozen=True):
    """`decode`."""

    names: list[DecodedName]


class GuessDocument(msgspec.Struct, frozen=True):
    """One term of a guess."""

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
    """A trace that ships."""

    name: str
    shows: str


class SamplesDocument(msgspec.Struct, frozen=True):
    """`samples`."""

    samples: list[SampleDocument]
    lessons: list[SampleDocument]
