"""Records steps of variants with torch.profiler, one variant after another or in turns,
and writes them as gzipped Chrome traces."""

from __future__ import annotations

import gzip
import os
import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from fusetui.analysis.questions.computing import Tallies, count_kinds_by_step
from fusetui.trace import open_trace

from .errors import CaptureError
from .folder import write_file
from .guard import exit_if_forked
from .options import Options
from .provenance import scrubbed_trace, set_trace_name
from .step import Step, make_synchronizer

END_BYTES = 64
"""The last bracket of a whole trace is among its last bytes, before white space."""
WAIT_STEPS = 1
"""Steps with the profiler off before it starts."""
WARM_UP_STEPS = 1
"""Steps that the profiler records and discards, before those that it keeps."""
TURNS_SEED = 0
STEP_PREFIX = "ProfilerStep#"
_GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")


class _TraceEvent(msgspec.Struct):
    """The fields of an event of a Chrome trace from which its step follows; times in
    us."""

    name: str = ""
    ph: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    args: Any = None

    @property
    def correlation(self) -> Any:
        return self.args.get("correlation") if isinstance(self.args, dict) else None

    @property
    def is_metadata(self) -> bool:
        return self.ph == "M"

    @property
    def is_gpu_work(self) -> bool:
        return self.cat in _GPU_CATEGORIES

    @property
    def is_step_on_cpu(self) -> bool:
        """Whether it is the annotation of a step; a GPU has one of its own."""
        is_step = self.ph == "X" and self.name.startswith(STEP_PREFIX)
        return is_step and "gpu" not in self.cat


def record_one(step: Step, options: Options, device_kind: str, path: Path) -> None:
    """Profile `options.profiled_steps` steps of one variant, and write the trace to
    `path` (.json.gz). Raises CaptureError if the trace is incomplete."""
    uncompressed_path = path.with_suffix("")
    steps = [step] * options.profiled_steps
    _profile_steps(
        unrecorded=[step],
        recorded=steps,
        options=options,
        device_kind=device_kind,
        plain=uncompressed_path,
    )
    compress_trace(uncompressed_path, path, options.scrub)


def record(
    steps: Mapping[str, Step], options: Options, device_kind: str, folder: Path
) -> None:
    """Profile variants in turns and write a trace `NAME.json.gz` for each.

    In each of `options.profiled_steps` rounds every variant runs one step, so whatever
    the machine does meanwhile affects all of them. The profiler writes one trace, which
    is then divided. The steps of a variant are numbered by rounds.
    """
    rounds = turn_order(list(steps), options.profiled_steps)
    all_turns = folder / "turns.json"
    _profile_steps(
        unrecorded=list(steps.values()),
        recorded=[steps[name] for names in rounds for name in names],
        options=options,
        device_kind=device_kind,
        plain=all_turns,
    )
    check_complete(all_turns)

    for name, document in divide_by_variant(all_turns.read_bytes(), rounds).items():
        plain = folder / f"{name}.json"
        write_file(plain, document)
        compress_trace(plain, folder / f"{name}.json.gz", options.scrub)

    all_turns.unlink()


def _profile_steps(
    unrecorded: Sequence[Step],
    recorded: Sequence[Step],
    options: Options,
    device_kind: str,
    plain: Path,
) -> None:
    """Profile steps and write the trace to `plain`.

    Each step of the profiler before the recorded ones runs all of `unrecorded`, so that
    every variant is warm. Each recorded one runs one of `recorded`. Every step waits
    for the device at its end, so that its kernels run within it.
    """
    parent = os.getpid()
    synchronize = make_synchronizer(device_kind)

    profiler_steps: list[Sequence[Step]] = [unrecorded] * (WAIT_STEPS + WARM_UP_STEPS)
    profiler_steps += [[step] for step in recorded]
    with profiler(
        options, device_kind, plain, wait=WAIT_STEPS, active=len(recorded)
    ) as recording:
        for steps in profiler_steps:
            for step in steps:
                _run_annotated(step)
            synchronize()
            recording.step()

    exit_if_forked(parent)


def _run_annotated(step: Step) -> None:
    """Runs the pieces of a step, each in an annotation with its label."""
    value = None
    for piece in step:
        with record_function(piece.label):
            value = piece.run(value)


def profiler(
    options: Options, device_kind: str, plain: Path, wait: int, active: int
) -> profile:
    """Return a profiler that leaves out `wait` steps, discards one, and writes the next
    `active` ones to `plain`. A child process that was forked meanwhile writes nothing.
    """
    parent = os.getpid()

    def export(finished: profile) -> None:
        if os.getpid() == parent:
            finished.export_chrome_trace(str(plain))

    activities = [ProfilerActivity.CPU]
    if device_kind == "cuda":
        activities.append(ProfilerActivity.CUDA)

    return profile(
        activities=activities,
        record_shapes=options.record_shapes,
        profile_memory=options.memory,
        with_stack=options.stack,
        schedule=schedule(wait=wait, warmup=WARM_UP_STEPS, active=active, repeat=1),
        on_trace_ready=export,
    )


def compress_trace(plain: Path, path: Path, scrub: bool) -> None:
    """Write the trace `plain` to `path` (.json.gz) and remove `plain`.

    The trace names the path that it was written to, which the name of the file
    replaces. With `scrub`, all other private data is removed too. Raises CaptureError
    if the profiler did not write all of the trace, or if `path` cannot be written.
    """
    check_complete(plain)
    if scrub:
        text = scrubbed_trace(plain, plain.name)
    else:
        text = plain.read_text(encoding="utf-8", errors="surrogateescape")
        text = set_trace_name(text, plain.name)
    document = text.encode(errors="surrogateescape")
    write_file(path, gzip.compress(document, mtime=0))  # equal traces give equal files
    plain.unlink()


def check_complete(plain: Path) -> None:
    """Raise CaptureError unless the profiler wrote a trace up to its end, which is a
    closing brace."""
    if not plain.exists():
        raise CaptureError("The profiler could not write its trace: is the disk full?")
    with plain.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - END_BYTES, 0))
        if not file.read().rstrip().endswith(b"}"):
            raise CaptureError(
                "The profiler did not write the whole trace: is the disk full?"
            )


def count_work(path: Path) -> Tallies:
    """Return how often each kind of work ran in the steps of a trace that was just
    written. Raises CaptureError if only part of the trace was written."""
    trace = open_trace(str(path), cached=False)
    if missing := trace.report.missing:
        raise CaptureError(f"The profiler did not write the whole trace ({missing}).")
    return count_kinds_by_step(trace)


def turn_order(names: Sequence[str], rounds: int) -> list[list[str]]:
    """Return the names in the order in which they run, for each round.

    Rounds come in pairs: one in random order, the next in the reverse order, so that no
    name comes first more often than another. The order is the same every time.
    """
    generator = random.Random(TURNS_SEED)
    order: list[list[str]] = []
    while len(order) < rounds:
        names_of_round = generator.sample(list(names), len(names))
        order.append(names_of_round)
        order.append(names_of_round[::-1])
    return order[:rounds]


class _Turn(NamedTuple):
    """Whose step it is, and in which round."""

    variant: str
    round_number: int


def divide_by_variant(
    document: bytes, rounds: Sequence[Sequence[str]]
) -> dict[str, bytes]:
    """Divide the trace of steps that took turns, and return the trace of each variant
    by its name. `rounds` are those of `turn_order`.

    An event belongs to the step in which it begins, GPU work to the step that launched
    it; other events outside of steps are left out. Steps get the number of their round,
    and all metadata is in each trace. Raises ValueError if the document does not have
    as many steps as the rounds.
    """
    keys = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    texts = msgspec.json.decode(keys["traceEvents"], type=list[msgspec.Raw])
    events = [msgspec.json.decode(text, type=_TraceEvent) for text in texts]
    turn_of_step = _list_turns(rounds)
    steps = _Steps(events, len(turn_of_step))
    variants = rounds[0] if rounds else ()

    texts_of: dict[str, list[bytes]] = {name: [] for name in variants}
    for event, text in zip(events, texts, strict=True):
        if event.is_metadata:
            for variant_texts in texts_of.values():
                variant_texts.append(bytes(text))
            continue
        step = steps.of(event)
        if step is not None:
            turn = turn_of_step[step]
            renumbered = _renumber_step(bytes(text), event, turn.round_number)
            texts_of[turn.variant].append(renumbered)

    documents = {}
    for name, variant_texts in texts_of.items():
        trace_events = msgspec.Raw(b"[\n" + b",\n".join(variant_texts) + b"\n]")
        documents[name] = msgspec.json.encode({**keys, "traceEvents": trace_events})

    return documents


def _list_turns(rounds: Sequence[Sequence[str]]) -> list[_Turn]:
    """Return the variant and the round of each step, in the order of the steps."""
    turns = []
    for round_number, names in enumerate(rounds):
        for name in names:
            turns.append(_Turn(variant=name, round_number=round_number))
    return turns


def _renumber_step(text: bytes, event: _TraceEvent, round_number: int) -> bytes:
    """Return the JSON text of an event. If the event is a step, its name has the number
    of its round."""
    if not event.name.startswith(STEP_PREFIX):
        return text
    old_name = f'"{event.name}"'.encode()
    new_name = f'"{STEP_PREFIX}{round_number}"'.encode()
    return text.replace(old_name, new_name, 1)


class _Steps:
    """The steps of a trace in the order of time, numbered from 0, and the step that an
    event belongs to."""

    def __init__(self, events: Sequence[_TraceEvent], count: int) -> None:
        """Raises ValueError unless there are `count` steps."""
        steps = [event for event in events if event.is_step_on_cpu]
        if len(steps) != count:
            raise ValueError(f"the profiler recorded {len(steps)} steps, not {count}")

        steps.sort(key=lambda step: step.ts)
        self._begins = [step.ts for step in steps]
        self._ends = [step.ts + step.dur for step in steps]
        self._by_name = {step.name: number for number, step in enumerate(steps)}
        self._by_correlation: dict[Any, int | None] = {}

        for event in events:
            is_cpu_slice = event.ph == "X" and not event.is_gpu_work
            if is_cpu_slice and event.correlation:
                self._by_correlation[event.correlation] = self._at(event.ts)

    def of(self, event: _TraceEvent) -> int | None:
        """Return the number of the step that an event belongs to; None outside of
        steps. GPU work belongs to the step that launched it."""
        if event.is_gpu_work and event.correlation in self._by_correlation:
            return self._by_correlation[event.correlation]
        if event.name in self._by_name:  # the step itself, on the CPU or on a GPU
            return self._by_name[event.name]
        return self._at(event.ts)

    def _at(self, ts: float) -> int | None:
        """Return the number of the step that contains a time in us; None outside of
        steps."""
        step = bisect_right(self._begins, ts) - 1
        if step < 0 or ts >= self._ends[step]:
            return None
        return step
