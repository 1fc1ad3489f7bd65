"""Records steps of variants with torch.profiler, one variant after another or in turns,
and writes them as gzipped Chrome traces."""

from __future__ import annotations

import gzip
import os
import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from fusetui.analysis.questions.computing import Tallies, tallies
from fusetui.trace import open_trace

from .errors import CaptureError
from .folder import store
from .guard import leave_if_forked
from .options import Options
from .provenance import scrubbed, set_trace_name
from .step import Step, synchronizer

TAIL = 64  # bytes in which the last bracket of a trace stands
WAIT, WARM_UP = 1, 1
"""Steps before the recorded ones: one with the profiler off, one that it discards."""
SEED = 0
STEP = "ProfilerStep#"
_GPU = ("kernel", "gpu_memcpy", "gpu_memset")


class _Event(msgspec.Struct):
    """What tells where an event of a trace belongs."""

    name: str = ""
    ph: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    args: Any = None

    @property
    def correlation(self) -> Any:
        return self.args.get("correlation") if isinstance(self.args, dict) else None


def record_one(step: Step, options: Options, device_kind: str, path: Path) -> None:
    """Profiles steps into `path` (.json.gz)."""
    plain = path.with_suffix("")
    _profile([step], [step] * options.profiled_steps, options, device_kind, plain)
    compress(plain, path, options.scrub)


def record(
    steps: Mapping[str, Step], options: Options, device_kind: str, folder: Path
) -> None:
    """Profiles all variants into one trace, and writes for each `NAME.json.gz` with its
    own steps; so whatever the machine does hits all alike. In each round every variant
    runs one step. The steps of a variant are numbered by rounds."""
    all_turns = folder / "turns.json"
    rounds = turns(list(steps), options.profiled_steps)
    order = [steps[name] for names in rounds for name in names]
    _profile([*steps.values()], order, options, device_kind, all_turns)
    check_written(all_turns)
    for name, document in divided(all_turns.read_bytes(), rounds).items():
        plain = folder / f"{name}.json"
        store(plain, document)
        compress(plain, folder / f"{name}.json.gz", options.scrub)
    all_turns.unlink()


def _profile(
    before: Sequence[Step],
    steps: Sequence[Step],
    options: Options,
    device_kind: str,
    plain: Path,
) -> None:
    """Profiles steps, after all those that come before together in each step of the
    plan. Every step is one `ProfilerStep#N` around the labels of its parts, and waits
    for the device, so that the kernels of a step run within it."""
    parent = os.getpid()
    synchronize = synchronizer(device_kind)
    unrecorded: list[Sequence[Step]] = [before] * (WAIT + WARM_UP)
    recorded: list[Sequence[Step]] = [[step] for step in steps]
    with profiler(options, device_kind, plain, WAIT, len(steps)) as recording:
        for together in unrecorded + recorded:
            for step in together:
                value = None
                for part in step:
                    with record_function(part.label):
                        value = part.run(value)
            synchronize()
            recording.step()
    leave_if_forked(parent)


def profiler(
    options: Options, device_kind: str, plain: Path, wait: int, active: int
) -> profile:
    """Leaves out `wait` steps and one that it discards, and writes the next `active`
    ones to `plain`; a child process that was forked meanwhile writes nothing."""
    parent = os.getpid()

    def export(done: profile) -> None:
        if os.getpid() == parent:
            done.export_chrome_trace(str(plain))

    activities = [ProfilerActivity.CPU]
    if device_kind == "cuda":
        activities.append(ProfilerActivity.CUDA)
    return profile(
        activities=activities,
        record_shapes=options.record_shapes,
        profile_memory=options.memory,
        with_stack=options.stack,
        schedule=schedule(wait=wait, warmup=WARM_UP, active=active, repeat=1),
        on_trace_ready=export,
    )


def compress(plain: Path, path: Path, scrub: bool) -> None:
    """Moves a trace into its gzip file, replacing the path in it by the file's name.
    With `scrub` all other private data is removed as well. Raises CaptureError if the
    profiler did not write all of it, or there is no room."""
    check_written(plain)
    if scrub:
        text = scrubbed(plain, plain.name)
    else:
        text = plain.read_text(encoding="utf-8", errors="surrogateescape")
        text = set_trace_name(text, plain.name)
    store(path, gzip.compress(text.encode(errors="surrogateescape"), mtime=0))
    plain.unlink()


def check_written(plain: Path) -> None:
    """Raises CaptureError unless the profiler wrote a trace up to its end."""
    if not plain.exists():
        raise CaptureError("The profiler could not write its trace: is the disk full?")
    with plain.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - TAIL, 0))
        if not file.read().rstrip().endswith(b"}"):
            raise CaptureError(
                "The profiler did not write its whole trace: is the disk full?"
            )


def counted(path: Path) -> Tallies:
    """What ran in a trace just written. Raises CaptureError if only part of it was."""
    trace = open_trace(str(path), cached=False)
    if missing := trace.report.missing:
        raise CaptureError(f"The profiler did not write its whole trace ({missing}).")
    return tallies(trace)


def turns(names: Sequence[str], rounds: int) -> list[list[str]]:
    """Who runs when: in each round all of them, in an order by chance that is the same
    every time; every other round is the one before turned round, so that none comes
    first more often."""
    chance = random.Random(SEED)
    found: list[list[str]] = []
    while len(found) < rounds:
        one = chance.sample(list(names), len(names))
        found += [one, one[::-1]]
    return found[:rounds]


def divided(document: bytes, rounds: Sequence[Sequence[str]]) -> dict[str, bytes]:
    """A trace of steps that took turns -> a trace for each variant, its events as they
    were. An event belongs to the step in which it begins, GPU work to that in which it
    was launched; what lies in no step is left out, but for metadata. Raises ValueError
    if the steps are not these."""
    keys = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    texts = msgspec.json.decode(keys["traceEvents"], type=list[msgspec.Raw])
    events = [msgspec.json.decode(text, type=_Event) for text in texts]
    owners = [
        (name, round_number)
        for round_number, names in enumerate(rounds)
        for name in names
    ]
    step_of = _steps(events, len(owners))
    variants = rounds[0] if rounds else ()
    kept: dict[str, list[bytes]] = {name: [] for name in variants}
    for event, text in zip(events, texts, strict=True):
        step = step_of(event)
        if step is not None:
            name, round_number = owners[step]
            kept[name].append(_of_round(bytes(text), event, round_number))
        elif event.ph == "M":
            for own_texts in kept.values():
                own_texts.append(bytes(text))
    documents = {}
    for name, own_texts in kept.items():
        listed = msgspec.Raw(b"[\n" + b",\n".join(own_texts) + b"\n]")
        documents[name] = msgspec.json.encode({**keys, "traceEvents": listed})
    return documents


def _of_round(text: bytes, event: _Event, round_number: int) -> bytes:
    """The text of an event; the name of a step gets the number of its round."""
    if not event.name.startswith(STEP):
        return text
    old = f'"{event.name}"'.encode()
    new = f'"{STEP}{round_number}"'.encode()
    return text.replace(old, new, 1)


def _steps(events: Sequence[_Event], count: int) -> Callable[[_Event], int | None]:
    """A function from an event to the number of its step in order of time, None for
    none."""
    spans = [event for event in events if _is_step(event)]
    spans.sort(key=lambda event: event.ts)
    if len(spans) != count:
        raise ValueError(f"the profiler recorded {len(spans)} steps, not {count}")
    begins = [span.ts for span in spans]
    numbers = {span.name: number for number, span in enumerate(spans)}

    def at(ts: float) -> int | None:
        step = bisect_right(begins, ts) - 1
        if step < 0 or ts >= spans[step].ts + spans[step].dur:
            return None
        return step

    launched = {}
    for event in events:
        if event.ph == "X" and event.cat not in _GPU and event.correlation:
            launched[event.correlation] = at(event.ts)

    def step_of(event: _Event) -> int | None:
        if event.ph == "M":
            return None
        if event.cat in _GPU and event.correlation in launched:
            return launched[event.correlation]
        if event.name in numbers:
            return numbers[event.name]
        return at(event.ts)

    return step_of


def _is_step(event: _Event) -> bool:
    """Whether it is the annotation of a step on the CPU."""
    return event.ph == "X" and event.name.startswith(STEP) and "gpu" not in event.cat
