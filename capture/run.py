"""Runs the variants of a job one after another: check, time, profile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any, TypeVar

import torch

from fusetui.analysis.questions.tally import Tallies

from . import check, compiler, expect, failure, recorder, step, timing, turns
from .device import CaptureDevice, versions
from .errors import CaptureError
from .guard import parent_only
from .job import Job, Trial
from .options import Options, public
from .provenance import provenance
from .record import FORMAT, Failed, Measured, RunRecord
from .scrub import texts
from .step import Answer, Step
from .telling import Progress
from .workload_job import SEED

NO_KERNELS = "the profiler recorded no kernels: KINETO_LOG_LEVEL=0 makes it say why."


class EmptyTraceError(Exception):
    """The profiler ran but saw no kernels, for instance for lack of permission to read counters."""


Outcome = Measured | Failed
T = TypeVar("T")


@dataclass(frozen=True)
class Ready:
    """A trial that was checked and timed, and has still to be profiled: `measured` lacks what the
    trace tells."""

    name: str
    parts: Step
    measured: Measured


class Runner:
    """Runs the trials of a job one after another, into one folder.

    Its only state is the answer that later trials are compared with if the job has none.
    """

    def __init__(
        self, job: Job, options: Options, device: CaptureDevice, progress: Progress
    ) -> None:
        self._job, self._options, self._device = job, options, device
        self._progress = progress
        self._first_answer: Answer | None = None
        self._texts = texts() if options.scrub else None
        names = [trial.name for trial in job.trials]
        self._guesses = expect.parse_for(options.expect, names)

    def run(self, folder: Path, where: Path) -> RunRecord:
        """Writes the traces into the folder and returns the measurements.

        If a trial fails, the others still run. `where` is the folder of the user's code.
        """
        compiler.show_cpu_kernels()
        with self._autograd():
            outcomes = self._in_turns(folder) if self._options.compare else self._one_by_one(folder)
        return self._record(outcomes, where)

    def _one_by_one(self, folder: Path) -> tuple[Outcome, ...]:
        def whole(trial: Trial) -> Measured:
            compiler.forget_compiled()
            return self._profiled(self._ready(trial), folder)

        return tuple(self._attempt(t, folder, partial(whole, t)) for t in self._job.trials)

    def _in_turns(self, folder: Path) -> tuple[Outcome, ...]:
        """All are made ready first; what was compiled for one is kept for its turns.

        Raises CaptureError if fewer than two can take turns.
        """
        compiler.forget_compiled()
        made = [self._attempt(t, folder, partial(self._ready, t)) for t in self._job.trials]
        ready = [one for one in made if isinstance(one, Ready)]
        if len(ready) < 2:
            raise CaptureError(_too_few(made))
        names = " and ".join(one.name for one in ready)
        with self._progress.phase(f"profiling {names} in turns"), parent_only():
            compiler.forget_counts()
            steps = {one.name: one.parts for one in ready}
            turns.record(steps, self._options, self._device.kind, folder)
        return tuple(self._read(one, folder) if isinstance(one, Ready) else one for one in made)

    def _autograd(self) -> AbstractContextManager[Any]:
        if self._job.keeps_gradients:
            return nullcontext()
        context: AbstractContextManager[Any] = torch.set_grad_enabled(self._job.backward)
        return context

    def _attempt(self, trial: Trial, folder: Path, act: Callable[[], T]) -> T | Failed:
        if trial.unable:
            return Failed(trial.name, trial.unable, trial.name not in self._options.variants)
        try:
            return act()
        except (Exception, SystemExit) as error:
            for path in folder.glob(f"{trial.name}.json*"):
                path.unlink()
            return Failed(trial.name, self._public(failure.sentence(error)))
        finally:
            if self._device.kind == "cuda":
                torch.cuda.empty_cache()

    def _ready(self, trial: Trial) -> Ready:
        """Builds, checks and times a trial."""
        kind, name = self._device.kind, trial.name
        compiler.forget_counts()
        with self._progress.phase(_first_phase(trial)), parent_only():
            call = trial.build()
            parts = self._step(call, trial)
            result, first_ns = _first_call(parts, kind)
            errors = self._check(step.answer(result, trial.copies[0], call))
            graphs = compiler.graph_count()
        del result
        with self._progress.phase(f"timing {name}"), parent_only():
            timed, peak_bytes = self._timed(parts)
        compiled = trial.compiles or graphs > 0
        measured = Measured(
            name=name,
            step_ns=timed.step_ns,
            compile_ns=first_ns if compiled else None,
            compile_cached=compiler.was_cached(),
            peak_memory_bytes=peak_bytes,
            max_error=errors.result,
            kernels_per_step=0,
            files=(f"{name}.json.gz",),
            max_gradient_error=errors.gradients,
            recompilations=compiler.graph_count() - graphs if compiled else None,
            weight_bytes=step.weight_bytes(call),
            warm_up_steps=timed.warm_up_steps,
            settled=timed.settled,
        )
        return Ready(name, parts, measured)

    def _profiled(self, ready: Ready, folder: Path) -> Measured:
        kind, path = self._device.kind, folder / f"{ready.name}.json.gz"
        with self._progress.phase(f"profiling {ready.name}"), parent_only():
            compiler.forget_counts()
            recorder.record(ready.parts, self._options, kind, path)
            return self._read(ready, folder)

    def _read(self, ready: Ready, folder: Path) -> Measured:
        """With what its trace tells, and the graphs that were compiled meanwhile."""
        counted = _counted(folder / f"{ready.name}.json.gz", self._device.kind)
        before = ready.measured.recompilations
        return replace(
            ready.measured,
            kernels_per_step=counted.per_step("kernels"),
            recompilations=None if before is None else before + compiler.graph_count(),
            guesses=expect.compare(self._guesses[ready.name], counted),
        )

    def _step(self, call: Callable[..., Any], trial: Trial) -> Step:
        label = self._job.label
        if self._job.backward:
            return step.training_step(call, label, trial.copies, self._job.gradient)
        return step.forward_step(call, label, trial.copies)

    def _check(self, answer: Answer) -> check.Errors:
        """Compares with the reference, or if there is none, with the first trial's answer."""
        if self._job.reference is not None:
            return check.check_answer(answer, self._job.reference, self._job.dtype)
        if self._first_answer is None:
            self._first_answer = answer
            return check.Errors(None, None)
        return check.compare_answer(answer, self._first_answer)

    def _timed(self, parts: Step) -> tuple[timing.Timing, int | None]:
        """Time per step, and on a GPU the most memory that was allocated meanwhile, in bytes."""
        call, kind = step.as_call(parts), self._device.kind
        if kind == "cpu":
            return timing.time_steps(call, kind, self._options.timing_seconds), None
        torch.cuda.reset_peak_memory_stats()
        timed = timing.time_steps(call, kind, self._options.timing_seconds)
        return timed, torch.cuda.max_memory_allocated()

    def _public(self, text: str) -> str:
        """The text, scrubbed if the run must not contain private data."""
        return self._texts.scrub(text) if self._texts else text

    def _record(self, outcomes: tuple[Outcome, ...], where: Path) -> RunRecord:
        job, options, device = self._job, self._options, self._device
        return RunRecord(
            format=FORMAT,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            workload=self._public(job.workload),
            summary=self._public(job.summary),
            shapes=job.shapes,
            shapes_shrunk=job.shapes_shrunk,
            dtype=job.dtype,
            device=device.name,
            device_kind=device.kind,
            versions=versions(),
            seed=SEED,
            profiled_steps=options.profiled_steps,
            options=public(options, self._public),
            variants=outcomes,
            backward=job.backward,
            mode=options.mode,
            provenance=provenance(device.kind, where, options.scrub),
        )


def _too_few(made: Sequence[Ready | Failed]) -> str:
    failed = [f"{one.name}: {one.failed}" for one in made if isinstance(one, Failed)]
    return " ".join(["--compare needs two variants that run.", *failed])


def _first_phase(trial: Trial) -> str:
    return f"{'compiling' if trial.compiles else 'checking'} {trial.name}"


def _counted(path: Path, kind: str) -> Tallies:
    """The kernels of a trace just written. Raises EmptyTraceError if there are none."""
    counted = recorder.counted(path)
    if not any(counted.found("kernels")) or counted.on_gpu != (kind == "cuda"):
        raise EmptyTraceError(NO_KERNELS)
    return counted


def _first_call(parts: Step, kind: str) -> tuple[Any, int]:
    """The first result and how long it took, in ns, including any compilation."""
    begin = perf_counter_ns()
    result = step.run_step(parts)
    timing.synchronizer(kind)()
    return result, perf_counter_ns() - begin
