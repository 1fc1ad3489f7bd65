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
from .folder import encode_json, new_folder, write_file
from .memory import record_memory, takes_snapshots
from .options import LOOP_OPTIONS, Options, check_options
from .provenance import (
    find_device,
    make_record,
    make_scrubber,
    select_gpu,
    silence_known_warnings,
)
from .record import RECORD_NAME, Measured, RunRecord, compare_guess, guesses_by_variant
from .table import format_guess_report

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
        """End a step. Up to the last recorded step, the profiler continues with the
        next one; after it, steps are timed."""
        self.steps += 1

        if self.steps <= self._last_recorded:
            # Otherwise the trace would show kernels that run later in the next step.
            self._synchronize()
            with silence_known_warnings():
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
    """Record steps of a loop into the run folder `out`, which must not exist.

    The loop's first `skip` steps are left out, and one more warms up the profiler.
    Steps after the recorded ones run with the profiler off and are timed. `name` is
    that of the trace and of the workload. `options` are those of `Options` that apply
    to a loop.

    The folder appears when the block ends. If it ends with an exception, or before a
    step was recorded, nothing is left behind. There is one exception: if a GPU runs out
    of memory with `memory=True`, a snapshot is written beside the folder,
    OUT-oom.pickle.

    Raises CaptureError for a wrong value and if no step was recorded, and TypeError for
    an option that does not apply.
    """
    for option in options:
        if option not in LOOP_OPTIONS:
            raise TypeError(
                f"there is no option {option!r}, only {', '.join(LOOP_OPTIONS)}"
            )

    loop_options = Options(**{"compile_log": False, **options})

    check_options(loop_options)
    if skip < 0:
        raise CaptureError(f"skip must be at least 0, not {skip}.")

    with silence_known_warnings():
        device = find_device(loop_options.device)

    parent = os.getpid()

    code_folder = Path.cwd()
    out = Path(out)
    with select_gpu(device), new_folder(out) as folder:
        plain = folder / f"{name}.json"
        with (
            record_memory(
                takes_snapshots(loop_options, device.kind),
                at_end=folder / f"{name}.pickle",
                at_failure=out.absolute().with_name(f"{out.name}-oom"),
            ),
            _run_profiler(loop_options, device.kind, skip, plain) as profiler,
            compile_log.logged(_compile_log_folder(loop_options, folder, name)),
        ):
            first_recorded = skip + 2  # after one that warms up the profiler
            session = Session(
                profiler,
                _make_synchronizer(device.kind),
                first=first_recorded,
                last=first_recorded + loop_options.profiled_steps - 1,
            )
            yield session

        if os.getpid() != parent:  # a child forked by the loop does not own the run
            return

        record = _finish_record(session, loop_options, device, plain, name, code_folder)
        write_file(folder / RECORD_NAME, encode_json(record))

    _print_result(session, record, out, loop_options.profiled_steps)


def _compile_log_folder(options: Options, folder: Path, name: str) -> Path | None:
    """Return the folder for the log of torch.compile, or None for no log, which is the
    default. A scrubbed run has none, as a log contains paths."""
    if not options.compile_log or options.scrub:
        return None
    return compile_log.folder_beside(folder, name)


@contextmanager
def _run_profiler(
    options: Options, device_kind: str, skip: int, plain: Path
) -> Iterator[Any]:
    """Within the block, give a running profiler, which writes its trace to `plain` and
    is stopped after the block. A forked child does not stop it."""
    from . import recorder

    parent = os.getpid()

    with silence_known_warnings():
        profiler = recorder.profiler(
            options, device_kind, plain, wait=skip, active=options.profiled_steps
        )
        profiler.start()

    try:
        yield profiler
    finally:
        if os.getpid() == parent:
            with silence_known_warnings():
                profiler.stop()


def _make_synchronizer(device_kind: str) -> Callable[[], None]:
    from . import step

    return step.make_synchronizer(device_kind)


def _finish_record(
    session: Session,
    options: Options,
    device: CaptureDevice,
    plain: Path,
    name: str,
    code_folder: Path,
) -> RunRecord:
    """Compress the trace `plain` and return the record of the run. Raises CaptureError
    if no step was recorded, or only part of the trace was written."""
    from . import recorder, step

    if not session.recorded_steps:
        raise CaptureError(
            f"The loop ended after {session.steps} steps, before one was recorded: "
            "call step() at the end of each, and use a smaller skip."
        )

    path = plain.with_name(f"{plain.name}.gz")
    recorder.compress_trace(plain, path, options.scrub)
    # The trace of a loop that ends early has one more step, which is not complete.
    counted = recorder.count_work(path).first_steps(session.recorded_steps)
    expected = guesses_by_variant(options.expect, [name])[name]
    measured = Measured(
        name=name,
        step_ns=step.summarize(session.durations_ns) if session.durations_ns else None,
        kernels_per_step=counted.mean_per_step("kernels"),
        files=(path.name,),
        guesses=compare_guess(expected, counted),
    )

    return make_record(
        device,
        options,
        code_folder,
        make_scrubber().scrub if options.scrub else str,
        workload=name,
        summary="a loop of the user's own",
        shapes={},
        profiled_steps=session.recorded_steps,
        variants=(measured,),
    )


def _print_result(
    session: Session, record: RunRecord, out: Path, wanted_steps: int
) -> None:
    """Print how many steps were recorded, the guesses and how to open the run. All goes
    to stderr, because stdout belongs to the user's program."""
    if record.profiled_steps < wanted_steps:
        print_message(
            f"The loop ended after {session.steps} steps: {record.profiled_steps} of "
            f"{wanted_steps} were recorded."
        )

    for line in format_guess_report(record):
        if line:
            print_message(line)

    print_message(f"Open it with: fusetui open {out}")

    if any(out.glob("*.pickle")):
        print_message(f"See what held memory: fusetui memory {out}")
