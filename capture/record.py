"""The record of a run: the content of run.json, as frozen data, and the code to read
it.

Durations are integer ns. Whatever is read may come from anybody, so nothing in it is
trusted. A record holds the user's guesses too, such as `kernels=5 gemm=3`, with what a
step really ran: `gpu.kinds` defines the kinds, and `analysis.questions.computing`
counts them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import orjson

from fusetui.analysis.questions.computing import Tallies
from fusetui.gpu.kinds import KINDS
from fusetui.text.cutting import clip

from .errors import CaptureError
from .options import Options

_GUESS_TERM = re.compile(r"([a-z_]+)=(\d+)\Z")
_VARIANT_PREFIX = re.compile(r"\s*([\w.-]+)\s*:")


@dataclass(frozen=True)
class Guess:
    """One term of a guess, and what was counted: `found` has a number for each step, or
    one for a whole trace without steps."""

    kind: str
    expected: int
    found: tuple[int, ...]

    @property
    def right(self) -> bool:
        """Whether the guess is right for every step."""
        return all(count == self.expected for count in self.found)

    @property
    def found_text(self) -> str:
        """What was counted: `5`, or `5, 5, 6` if steps differ."""
        steps_differ = len(set(self.found)) > 1
        counts = self.found if steps_differ else self.found[:1]
        return ", ".join(str(count) for count in counts)


def parse_guess(guess: str) -> dict[str, int]:
    """Return the expected count of each kind in a guess, in which commas are allowed
    too. Raises CaptureError for an unknown kind, for what is not a whole number, and
    for an empty guess.

        "kernels=5 gemm=3" -> {"kernels": 5, "gemm": 3}
    """
    expected: dict[str, int] = {}
    for term in guess.replace(",", " ").split():
        kind = term.partition("=")[0]
        if kind not in KINDS:
            kind_names = ", ".join(sorted(KINDS))
            raise CaptureError(
                f"'{term}' is not a valid expectation: write KIND=NUMBER, as in "
                f"gemm=3, where KIND is one of {kind_names}."
            )

        match = _GUESS_TERM.match(term)
        if not match:
            raise CaptureError(
                f"'{term}' is not a valid expectation: use a whole number, as in gemm=3."
            )

        expected[kind] = int(match[2])

    if not expected:
        raise CaptureError(
            '--expect is empty: use, for example, --expect "kernels=5 gemm=3".'
        )

    return expected


def guesses_by_variant(
    guesses: Iterable[str], variants: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Return the expected counts of each variant: `gemm=3` applies to all of them,
    `eager: gemm=3` to one.

    A later guess replaces an earlier one about the same kind. Raises CaptureError for a
    variant that is not run, or an invalid guess.
    """
    expected: dict[str, dict[str, int]] = {variant: {} for variant in variants}
    for guess in guesses:
        prefix = _VARIANT_PREFIX.match(guess)
        if prefix is None:
            counts = parse_guess(guess)
            for variant in variants:
                expected[variant] |= counts
            continue

        variant = prefix[1]
        if variant not in expected:
            raise CaptureError(
                f"--expect names '{variant}', which is not among the variants run."
            )

        expected[variant] |= parse_guess(guess[prefix.end() :])

    return expected


def compare_guess(expected: Mapping[str, int], counted: Tallies) -> tuple[Guess, ...]:
    """Return every term of a guess, with what was counted in the trace."""
    return tuple(
        Guess(kind=kind, expected=count, found=counted.counts_of_kind(kind))
        for kind, count in expected.items()
    )


def format_guesses(variant: str, guesses: Sequence[Guess]) -> list[str]:
    """Return a line for each guess, such as `= eager kernels: expected 5, found 5`. A
    wrong guess begins with `!` instead of `=`."""
    lines = []
    for guess in guesses:
        mark = "=" if guess.right else "!"
        lines.append(
            f"{mark} {variant} {guess.kind}: expected {guess.expected}, found {guess.found_text}"
        )
    return lines


RECORD_NAME = "run.json"
MAX_JSON_BYTES = 16 << 20
"""Of run.json and sweep.json; a run of a hundred variants takes 100 kB."""

T = TypeVar("T")

FORMAT = 2
"""The version of run.json, incremented when a key changes its meaning."""


@dataclass(frozen=True)
class StepTime:
    """Time of one step with the profiler off, in ns, over n samples."""

    median: int
    p10: int
    p90: int
    n: int


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A variant that ran.

    - `step_ns`: None if no step ran with the profiler off.
    - `compile_ns`: the time of the first call, None if the variant compiles nothing.
    - `compile_cached`: whether the compiler's cache on disk was used.
    - `peak_memory_bytes`: the most that was allocated on the GPU during timing,
      including weights; None on a CPU.
    - `max_error`: the largest absolute error of the result.
    - `files`: names inside the run folder.
    - `max_gradient_error`: the largest error of any gradient, as a share of the largest
      value of that gradient.
    - `recompilations`: graphs that were compiled after the first call.
    - `weight_bytes`: the parameters and buffers of this variant.
    - `settled`: step times were stable when timing began.
    """

    name: str
    step_ns: StepTime | None
    compile_ns: int | None = None
    compile_cached: bool | None = None
    peak_memory_bytes: int | None = None
    max_error: float | None = None
    kernels_per_step: float
    files: tuple[str, ...]
    max_gradient_error: float | None = None
    recompilations: int | None = None
    weight_bytes: int | None = None
    warm_up_steps: int = 0
    settled: bool = True
    guesses: tuple[Guess, ...] = ()


@dataclass(frozen=True)
class Failed:
    """A variant that did not run or gave a wrong result. `failed` says why in one
    sentence; `skipped`: it cannot run on this machine, and was not selected by
    name."""

    name: str
    failed: str
    skipped: bool = False


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One run of a workload.

    `shapes_shrunk`: some axis has the default size for a CPU, which is smaller than
    that for a GPU. `options` are those that the user gave. `backward`: a step is a
    forward and a backward pass. `mode` is that of torch.compile. `provenance` says
    where and how the run was made, with None for what could not be read.
    """

    format: int
    created: str
    workload: str
    summary: str
    shapes: Mapping[str, int]
    shapes_shrunk: bool = False
    dtype: str = ""
    device: str
    device_kind: str
    versions: Mapping[str, str | None]
    seed: int = 0
    profiled_steps: int
    variants: tuple[Measured | Failed, ...]
    options: Options = field(default_factory=Options)
    backward: bool = False
    mode: str | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measured(self) -> tuple[Measured, ...]:
        """The variants that ran, in the requested order."""
        return tuple(
            variant for variant in self.variants if isinstance(variant, Measured)
        )

    @property
    def failed(self) -> tuple[Failed, ...]:
        """The variants that failed, without those that were skipped."""
        return tuple(
            variant
            for variant in self.variants
            if isinstance(variant, Failed) and not variant.skipped
        )


@dataclass(frozen=True)
class RunOutcome:
    """What a capture did: the folder that it wrote, and whether every guess was right.
    `failed` names the variants that failed, `eager`, in a sweep behind their point:
    `batch=64 eager`; and points at which nothing was measured: `batch=64`."""

    folder: Path
    right: bool
    failed: tuple[str, ...] = ()


class ListedVariant(msgspec.Struct, frozen=True):
    """The fields of a variant that are needed to open its traces."""

    name: str = ""
    files: tuple[str, ...] | None = ()


class Traces(msgspec.Struct, frozen=True):
    """The traces that run.json lists. `found` has (name of the variant, path), `ignored`
    a sentence for each file that must not be opened."""

    found: tuple[tuple[str, Path], ...]
    ignored: tuple[str, ...]


class SavedVariant(msgspec.Struct, frozen=True):
    """A variant as read from run.json, with the fields that are shown again: those of
    `Measured`, or of `Failed`."""

    name: str
    step_ns: StepTime | None = None
    kernels_per_step: float | None = None
    weight_bytes: int | None = None
    max_error: float | None = None
    compile_ns: int | None = None
    guesses: tuple[Guess, ...] = ()
    failed: str | None = None
    skipped: bool = False


class SavedRun(msgspec.Struct, frozen=True):
    """A run as read from run.json, with the fields of `RunRecord` that are shown
    again."""

    workload: str
    shapes: dict[str, int]
    dtype: str
    device: str
    device_kind: str
    variants: Annotated[tuple[SavedVariant, ...], msgspec.Meta(min_length=1)]
    backward: bool = False
    mode: str | None = None


class _ListedRun(msgspec.Struct, frozen=True):
    variants: tuple[ListedVariant, ...]


def read_run(folder: Path) -> SavedRun:
    """Return the run in a folder, as its run.json has it. Raises CaptureError if
    run.json is missing or has another form."""
    return _read_record(folder, SavedRun)


def list_traces(folder: Path) -> Traces:
    """Return the traces that run.json lists, in its order, without those that must not
    be opened. Raises CaptureError if the folder has no run.json that lists variants."""
    traces = []
    ignored: dict[str, str] = {}  # a sentence by the name of the file
    for variant in _read_record(folder, _ListedRun).variants:
        for name in variant.files or ():
            reason = explain_not_opened(folder, name)
            if reason is None:
                traces.append((variant.name, folder / name))
            else:
                ignored[name] = (
                    f"{folder / RECORD_NAME} lists '{clip(name, 60, '...')}', "
                    f"which {reason}: it is ignored."
                )

    return Traces(found=tuple(traces), ignored=tuple(ignored.values()))


def explain_not_opened(folder: Path, name: str) -> str | None:
    """Return why a file of a run must not be opened, such as `leads out of the folder`.
    None if it may be, because it is a regular file inside the folder, also behind a
    link."""
    path = folder / name
    try:
        resolved_path = Path(os.path.realpath(path))
        if not resolved_path.is_relative_to(os.path.realpath(folder)):
            return "leads out of the folder"
        is_regular = stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        return f"cannot be opened ({(error.strerror or str(error)).lower()})"
    except ValueError:  # a NUL in the name
        return "is not a file name"

    return None if is_regular else "is not a regular file"


def read_json(path: Path) -> Any:
    """Return the content of a JSON file. Raises CaptureError if it cannot be read, is
    no regular file, is larger than 16 MiB or is not JSON."""
    try:
        # Not even opened, because that could wait for a pipe; and if it becomes one
        # after this check, `_open_without_waiting` does not wait.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError("it is not a regular file")
        with open(path, "rb", opener=_open_without_waiting) as file:
            content = file.read(MAX_JSON_BYTES + 1)
        if len(content) > MAX_JSON_BYTES:
            raise OSError(f"it is larger than {MAX_JSON_BYTES >> 20} MiB")
    except OSError as error:
        raise CaptureError(f"Cannot read {path}: {error.strerror or error}.") from error

    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise CaptureError(f"{path} is not JSON: {error}.") from error


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file for `open`, without waiting for a writer if it is a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _read_record(folder: Path, kind: type[T]) -> T:
    """Return the record in a run folder, as the type `kind`. Raises CaptureError if it
    is none."""
    path = folder / RECORD_NAME
    try:
        return msgspec.convert(read_json(path), kind)
    except msgspec.ValidationError as error:
        raise CaptureError(
            f"{path} is not the record of a fusetui run: {error}."
        ) from error
