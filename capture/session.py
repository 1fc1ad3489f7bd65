"""`with fusetui.capture.profile("runs/x") as p:` around a training loop, `p.step()` at
its end.

The first steps are skipped, the next are recorded, and the rest run with the profiler
off and give the time per step. Importing this does not need torch; entering the block
does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from .errors import CaptureError, tell
from .folder import as_json, new_folder, store
from .memory import memory_history, takes_snapshots
from .options import IN_LOOP, Options, validate
from .provenance import find_device, new_record, quiet_torch, selected, texts
from .record import RECORD_NAME, Measured, RunRecord, compare, parse_for
from .table import guesses

if TYPE_CHECKING:
    from .provenance import CaptureDevice


class Session:
    """The object of the `with` block: call `step()` at the end of each step of the
    loop."""

    def __init__(
        self, profiler: Any, synchronize: Callable[[], None], first: int, last: int
    ) -> None:
        """`first` and `last`: the numbers of the recorded steps, counted from 1."""
        self._profiler = profiler
        self._synchronize = synchronize
        self._first_recorded = first
        self._last_recorded = last
        self.steps = 0  # that have ended
        self._last_ns: int | None = None
        self.durations_ns: list[int] = []

    def step(self) -> None:
        self.steps += 1
        if self.steps <= self._last_recorded:
            # A step's kernels must end within it, or the trace would show them in the
            # next one.
            self._synchronize()
            with quiet_torch():
                self._profiler.step()
            return
        now = perf_counter_ns()
        if self._last_ns is not None:
            self.durations_ns.append(now - self._last_ns)
        self._last_ns = now

    @property
    def recorded_steps(self) -> int:
        """The number of complete steps in the trace."""
        return max(min(self.steps, self._last_recorded) - self._first_recorded + 1, 0)


@contextmanager
def profile(
    out: str | Path, *, skip: int = 1, name: str = "train", **options: Any
) -> Iterator[Session]:
    """Records steps of a loop into the run folder `out`, which must not exist.

    `skip` steps come before them, and one more that warms up the profiler; every
    further step runs with the profiler off and is timed. The folder appears when the
    block ends; if it ends with an exception, or before a step was recorded, nothing is
    left behind, except with `memory` on a GPU that ran out: a snapshot beside the
    folder, OUT-oom.pickle. `options` are those of `Options` that apply to a loop.
    Raises CaptureError, and TypeError for any other option.
    """
    if unknown := [name for name in options if name not in IN_LOOP]:
        raise TypeError(
            f"there is no option {unknown[0]!r} here, only {', '.join(IN_LOOP)}"
        )
    asked = Options(**options)
    validate(asked)
    if skip < 0:
        raise CaptureError(f"skip must be at least 0, not {skip}.")
    with quiet_torch():
        found = find_device(asked.device)
    parent = os.getpid()
    where = Path.cwd()
    with selected(found), new_folder(Path(out)) as folder:
        plain = folder / f"{name}.json"
        snapshot = folder / f"{name}.pickle"
        failed = Path(out).absolute().with_name(f"{Path(out).name}-oom")
        with (
            memory_history(takes_snapshots(asked, found.kind), snapshot, failed),
            _profiler(asked, found.kind, skip, plain) as (profiler, synchronize),
        ):
            session = Session(
                profiler,
                synchronize,
                first=skip + 2,
                last=skip + 1 + asked.profiled_steps,
            )
            yield session
        if os.getpid() != parent:  # a child forked by the loop does not own the run
            return
        record = _record(session, asked, found, plain, name, where)
        store(folder / RECORD_NAME, as_json(record))
    _tell(session, record, Path(out), asked.profiled_steps)


@contextmanager
def _profiler(
    options: Options, kind: str, skip: int, plain: Path
) -> Iterator[tuple[Any, Callable[[], None]]]:
    """A running profiler that writes its trace to `plain`, and what waits for the
    device."""
    from . import recorder, step

    parent = os.getpid()
    with quiet_torch():
        profiler = recorder.profiler(options, kind, plain, skip, options.profiled_steps)
        profiler.start()
    try:
        yield profiler, step.synchronizer(kind)
    finally:
        if os.getpid() == parent:
            with quiet_torch():
                profiler.stop()


def _record(
    session: Session,
    options: Options,
    device: CaptureDevice,
    plain: Path,
    name: str,
    where: Path,
) -> RunRecord:
    """Compresses the trace and collects the measurements; `where` is the folder of the
    user's code. Raises CaptureError if there is no trace, or only part of one."""
    from . import recorder, step

    if not session.recorded_steps:
        raise CaptureError(
            f"The loop ended after {session.steps} steps, before one was recorded: "
            "call step() at the end of each, and use a smaller skip."
        )
    path = plain.with_name(f"{plain.name}.gz")
    recorder.compress(plain, path, options.scrub)
    # A loop that ends early leaves one more step open.
    counted = recorder.counted(path).first(session.recorded_steps)
    guesses = parse_for(options.expect, [name])[name]
    measured = Measured(
        name=name,
        step_ns=step.summarize(session.durations_ns) if session.durations_ns else None,
        kernels_per_step=counted.per_step("kernels"),
        files=(path.name,),
        guesses=compare(guesses, counted),
    )
    return new_record(
        device,
        options,
        where,
        texts().scrub if options.scrub else str,
        workload=name,
        summary="a loop of the user's own",
        shapes={},
        profiled_steps=session.recorded_steps,
        variants=(measured,),
    )


def _tell(session: Session, record: RunRecord, out: Path, wanted: int) -> None:
    """Messages go to stderr: stdout belongs to the user's program."""
    if record.profiled_steps < wanted:
        tell(
            f"The loop ended after {session.steps} steps: {record.profiled_steps} of {wanted} "
            "were recorded."
        )
    for line in filter(None, guesses(record)):
        tell(line)
    tell(f"Open it with: fusetui open {out}")
    if any(out.glob("*.pickle")):
        tell(f"Who held memory: fusetui memory {out}")
