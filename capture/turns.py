"""Variants that take turns in one profile, so that whatever the machine does hits all alike."""

from __future__ import annotations

import os
import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from torch.profiler import profile, schedule

from .folder import store
from .guard import leave_if_forked
from .options import Options
from .recorder import WAIT, WARM_UP, check_written, compress, run_labeled, settings
from .step import Step
from .timing import synchronizer

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


def record(steps: Mapping[str, Step], options: Options, device_kind: str, folder: Path) -> None:
    """Profiles all variants into one trace, and writes for each `NAME.json.gz` with its own steps.

    In each round every variant runs one step. The steps of a variant are numbered by rounds.
    """
    both, parent = folder / "turns.json", os.getpid()

    def export(profiler: Any) -> None:
        leave_if_forked(parent)
        profiler.export_chrome_trace(str(both))

    rounds = turns(list(steps), options.profiled_steps)
    order = [name for one in rounds for name in one]
    plan = schedule(wait=WAIT, warmup=WARM_UP, active=len(order), repeat=1)
    synchronize = synchronizer(device_kind)
    before = [list(steps)] * (WAIT + WARM_UP)  # a step of the plan each
    with profile(
        **settings(options, device_kind), schedule=plan, on_trace_ready=export
    ) as profiler:
        for names in [*before, *([name] for name in order)]:
            for name in names:
                run_labeled(steps[name])
            synchronize()
            profiler.step()
    check_written(both)
    for name, document in divided(both.read_bytes(), rounds).items():
        plain = folder / f"{name}.json"
        store(plain, document)
        compress(plain, folder / f"{name}.json.gz", options.scrub)
    both.unlink()


def turns(names: Sequence[str], rounds: int) -> list[list[str]]:
    """Who runs when: in each round all of them, in an order by chance that is the same every time;
    every other round is the one before turned round, so that none comes first more often."""
    chance = random.Random(SEED)
    found: list[list[str]] = []
    while len(found) < rounds:
        one = chance.sample(list(names), len(names))
        found += [one, one[::-1]]
    return found[:rounds]


def divided(document: bytes, rounds: Sequence[Sequence[str]]) -> dict[str, bytes]:
    """A trace of steps that took turns -> a trace for each variant, its events as they were.

    An event belongs to the step in which it begins, GPU work to that in which it was launched; what
    lies in no step is left out, but for metadata. Raises ValueError if the steps are not these.
    """
    keys = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    texts = msgspec.json.decode(keys["traceEvents"], type=list[msgspec.Raw])
    events = [msgspec.json.decode(text, type=_Event) for text in texts]
    owners = [(name, number) for number, one in enumerate(rounds) for name in one]
    step_of = _steps(events, len(owners))
    kept: dict[str, list[bytes]] = {name: [] for one in rounds[:1] for name in one}
    for event, text in zip(events, texts, strict=True):
        step = step_of(event)
        if step is not None:
            name, number = owners[step]
            kept[name].append(_renumbered(event, bytes(text), number))
        elif event.ph == "M":
            for found in kept.values():
                found.append(bytes(text))
    return {name: _with_events(keys, found) for name, found in kept.items()}


def _steps(events: Sequence[_Event], count: int) -> Callable[[_Event], int | None]:
    """A function from an event to the number of its step in order of time, None for none."""
    spans = [e for e in events if e.ph == "X" and e.name.startswith(STEP) and "gpu" not in e.cat]
    spans.sort(key=lambda event: event.ts)
    if len(spans) != count:
        raise ValueError(f"the profiler recorded {len(spans)} steps, not {count}")
    begins = [span.ts for span in spans]
    numbers = {span.name: number for number, span in enumerate(spans)}

    def at(ts: float) -> int | None:
        step = bisect_right(begins, ts) - 1
        return step if step >= 0 and ts < spans[step].ts + spans[step].dur else None

    launched = {
        event.correlation: at(event.ts)
        for event in events
        if event.ph == "X" and event.cat not in _GPU and event.correlation
    }

    def step_of(event: _Event) -> int | None:
        if event.ph == "M":
            return None
        if event.cat in _GPU and event.correlation in launched:
            return launched[event.correlation]
        return numbers[event.name] if event.name in numbers else at(event.ts)

    return step_of


def _renumbered(event: _Event, text: bytes, number: int) -> bytes:
    """The name of a step has the number of its round."""
    if not event.name.startswith(STEP):
        return text
    return text.replace(f'"{event.name}"'.encode(), f'"{STEP}{number}"'.encode(), 1)


def _with_events(keys: Mapping[str, msgspec.Raw], events: Sequence[bytes]) -> bytes:
    listed = msgspec.Raw(b"[\n" + b",\n".join(events) + b"\n]")
    return msgspec.json.encode({**keys, "traceEvents": listed})
