"""The context manager `with fusetui.capture.profile("runs/x") as p:` for a training
loop that calls `p.step()` at its end.

The first steps are skipped, the next are recorded, and the rest run with the profiler
off and are timed. Importing this does not need torch; entering the block does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from . import compile_log
from .errors import CaptureError, print_message
from .folder import as_json, new_folder, write_file
from .memory import memory_history, takes_snapshots
from .options import LOOP_OPTIONS, Options, validate
from .provenance import find_device, gpu_selected, new_record, new_scrubber, quiet_torch
from .record import RECORD_NAME, Measured, RunRecord, compare_guess, guesses_by_variant
from .table import guess_report

if TYPE_CHECKING:
    from .provenance import CaptureDevice


class Session:
    """The object of the `with` block: call `step()` at the end of each step of the
    loop."""

    def __init__(
        self, profiler: Any, synchronize: Callable[[], None], first: int, last: int
    ) -> None:
        """Steps `first` to `last`, counted from 1, are recorded; `synchronize` waits
        for the device."""
        self._profiler = profiler
        self._synchronize = synchronize
        self._first_recorded = first
        self._last_recorded = last
        self._last_step_end_ns: int | None = None
        self.steps = 0
        """How many steps have ended."""
        self.durations_ns: list[int] = []
        """Of the steps with the profiler off, without the first one."""

    def step(self) -> None:
        """Ends a step. Up to the last recorded one, the profiler goes on to the next;
        after it, the step is timed."""
        self.steps += 1
        if self.steps <= self._last_recorded:
            # Otherwise the trace would show kernels that run later in the next step.
            self._synchronize()
            with quiet_torch():
                self._profiler.step()
            return
        now = perf_counter_ns()
        if self._last_step_end_ns is not None:
            self.durations_ns.append(now - self._last_step_end_ns)
        self._last_step_end_ns = now

    @property
    def recorded_steps(self) -> int:
        """The number of complete steps in the trace."""
        last = min(self.steps, self._last_recorded)
        return max(last - self._first_recorded + 1, 0)


@contextmanager
def profile(
    out: str | Path, *, skip: int = 1, name: str = "train", **options: Any
) -> Iterator[Session]:
    """Records steps of a loop into the run folder `out`, which must not exist.

    The loop's first `skip` steps are left out, and one more warms up the profiler.
    Steps after the recorded ones run with the profiler off and are timed. `name` is
    that of the trace and of the workload. `options` are those of `Options` that apply
    to a loop.

    The folder appears when the block ends. If it ends with an exception, or before a
    step was recorded, nothing is left behind, with one exception: if a GPU runs out of
    memory with `memory=True`, a snapshot is written beside the folder, OUT-oom.pickle.

    Raises CaptureError for a wrong value and if no step was recorded, and TypeError for
    an option that does not apply.
    """
    for option in options:
        if option not in LOOP_OPTIONS:
            raise TypeError(
                f"there is no option {option!r}, only {', '.join(LOOP_OPTIONS)}"
            )
    loop_options = Options(**{"compile_log": False, **options})
    validate(loop_options)
    if skip < 0:
        raise CaptureError(f"skip must be at least 0, not {skip}.")
    with quiet_torch():
        device = find_device(loop_options.device)
    parent = os.getpid()
    code_folder = Path.cwd()
    out = Path(out)
    with gpu_selected(device), new_folder(out) as folder:
        plain = folder / f"{name}.json"
        with (
            memory_history(
                takes_snapshots(loop_options, device.kind),
                at_end=folder / f"{name}.pickle",
                at_failure=out.absolute().with_name(f"{out.name}-oom"),
            ),
            _started_profiler(loop_options, device.kind, skip, plain) as profiler,
            compile_log.logged(_log_folder(loop_options, folder, name)),
        ):
            first_recorded = skip + 2  # after one that warms up the profiler
            session = Session(
                profiler,
                _synchronizer(device.kind),
                first=first_recorded,
                last=first_recorded + loop_options.profiled_steps - 1,
            )
            yield session
        if os.getpid() != parent:  # a child forked by the loop does not own the run
            return
        record = _record(session, loop_options, device, plain, name, code_folder)
        write_file(folder / RECORD_NAME, as_json(record))
    _print_result(session, record, out, loop_options.profiled_steps)


def _log_folder(options: Options, folder: Path, name: str) -> Path | None:
    """Where what torch.compile logs goes; None: nowhere, as by default."""
    if not options.compile_log or options.scrub:
        return None
    return compile_log.folder_beside(folder, name)


@contextmanager
def _started_profiler(
    options: Options, device_kind: str, skip: int, plain: Path
) -> Iterator[Any]:
    """A running profiler, which writes its trace to `plain` and is stopped after the
    block."""
    from . import recorder

    parent = os.getpid()
    with quiet_torch():
        profiler = recorder.profiler(
            options, device_kind, plain, wait=skip, active=options.profiled_steps
        )
        profiler.start()
    try:
        yield profiler
    finally:
        if os.getpid() == parent:
            with quiet_torch():
                profiler.stop()


def _synchronizer(device_kind: str) -> Callable[[], None]:
    from . import step

    return step.synchronizer(device_kind)


def _record(
    session: Session,
    options: Options,
    device: CaptureDevice,
    plain: Path,
    name: str,
    code_folder: Path,
) -> RunRecord:
    """Compresses the trace `plain` and returns the record of the run. Raises
    CaptureError if no step was recorded, or only part of the trace was written."""
    from . import recorder, step

    if not session.recorded_steps:
        raise CaptureError(
            f"The loop ended after {session.steps} steps, before one was recorded: "
            "call step() at the end of each, and use a smaller skip."
        )
    path = plain.with_name(f"{plain.name}.gz")
    recorder.compress_trace(plain, path, options.scrub)
    # The trace of a loop that ends early has one more step, which is not complete.
    counted = recorder.count_work(path).first(session.recorded_steps)
    expected = guesses_by_variant(options.expect, [name])[name]
    measured = Measured(
        name=name,
        step_ns=step.summarize(session.durations_ns) if session.durations_ns else None,
        kernels_per_step=counted.per_step("kernels"),
        files=(path.name,),
        guesses=compare_guess(expected, counted),
    )
    return new_record(
        device,
        options,
        code_folder,
        new_scrubber().scrub if options.scrub else str,
        workload=name,
        summary="a loop of the user's own",
        shapes={},
        profiled_steps=session.recorded_steps,
        variants=(measured,),
    )


def _print_result(
    session: Session, record: RunRecord, out: Path, wanted_steps: int
) -> None:
    """Prints messages on stderr: stdout belongs to the user's program."""
    if record.profiled_steps < wanted_steps:
        print_message(
            f"The loop ended after {session.steps} steps: {record.profiled_steps} of "
            f"{wanted_steps} were recorded."
        )
    for line in guess_report(record):
        if line:
            print_message(line)
    print_message(f"Open it with: fusetui open {out}")
    if any(out.glob("*.pickle")):
        print_message(f"See what held memory: fusetui memory {out}")
