"""Runs the variants of a job one after another: check, time, profile."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple, TypeVar

import torch

from . import compile_log, recorder, step
from .errors import CaptureError, Progress, describe_failure
from .guard import end_forked_children
from .job import SEED, Job, Trial
from .memory import record_memory, takes_snapshots
from .options import Options
from .provenance import CaptureDevice, make_record, make_scrubber
from .record import Failed, Measured, RunRecord, compare_guess, guesses_by_variant
from .step import Answer, Errors, Step

NO_KERNELS = "the profiler recorded no kernels: set KINETO_LOG_LEVEL=0 to see why."


class EmptyTraceError(Exception):
    """The profiler ran but saw no kernels, for instance for lack of permission to read
    counters."""


class ReadyTrial(NamedTuple):
    """A trial that was checked and timed; `measured` lacks what its trace shows."""

    step: Step
    measured: Measured


class _FirstStep(NamedTuple):
    """The first step of a trial, whose result was right."""

    call: Callable[..., Any]  # what the trial built
    step: Step
    duration_ns: int  # including any compilation
    errors: Errors
    graphs: int  # that were compiled


Outcome = TypeVar("Outcome", Measured, ReadyTrial)


class Runner:
    """Runs the trials of a job, one after another or in turns, into one folder.

    Its only state is the answer of the first trial, with which later ones are compared
    if the job has no reference.
    """

    def __init__(
        self, job: Job, options: Options, device: CaptureDevice, progress: Progress
    ) -> None:
        """Raises CaptureError for a wrong guess of the options."""
        self._job = job
        self._options = options
        self._device = device
        self._progress = progress
        self._first_answer: Answer | None = None
        self._public = make_scrubber().scrub if options.scrub else str
        self._guesses = guesses_by_variant(
            options.expect, [trial.name for trial in job.trials]
        )
        self._snapshots = takes_snapshots(options, device.kind)

    def run(self, folder: Path, where: Path) -> RunRecord:
        """Run all trials, write their traces into `folder`, and return the record. If a
        trial fails, the others still run. `where` is the folder of the user's code."""
        import torch._inductor.config

        # The profiler sees Inductor's fused C++ kernels, which are hidden by default.
        torch._inductor.config.cpp.enable_kernel_profile = True

        with self._set_autograd():
            if self._options.compare:
                variants = self._run_in_turns(folder)
            else:
                variants = self._one_by_one(folder)

        job = self._job

        return make_record(
            self._device,
            self._options,
            where,
            self._public,
            workload=self._public(job.workload),
            summary=self._public(job.summary),
            shapes=job.shapes,
            shapes_shrunk=job.shapes_shrunk,
            dtype=job.dtype,
            seed=SEED,
            profiled_steps=self._options.profiled_steps,
            variants=variants,
            backward=job.backward,
            mode=self._options.mode,
        )

    def _set_autograd(self) -> AbstractContextManager[None]:
        """Return a context in which autograd is on for steps with a backward pass,
        otherwise off. It changes nothing if the user's functions decide about autograd.
        """
        if self._job.keeps_gradients:
            return nullcontext()
        switch: AbstractContextManager[None] = torch.set_grad_enabled(
            self._job.backward
        )
        return switch

    def _one_by_one(self, folder: Path) -> tuple[Measured | Failed, ...]:
        """Compile, time and profile each trial before the next one, and return what was
        measured or why it failed."""

        def measure(trial: Trial) -> Measured:
            forget_compiled()
            return self._profiled(self._ready(trial, folder), folder)

        return tuple(
            self._attempt(trial, folder, measure) for trial in self._job.trials
        )

    def _run_in_turns(self, folder: Path) -> tuple[Measured | Failed, ...]:
        """Make all trials ready, then profile their steps in turns; return what was
        measured or why it failed. Raises CaptureError unless two trials run."""
        forget_compiled()
        attempts = [
            self._attempt(trial, folder, partial(self._ready, folder=folder))
            for trial in self._job.trials
        ]

        steps: dict[str, Step] = {}
        failures: list[str] = []
        for attempt in attempts:
            if isinstance(attempt, Failed):
                failures.append(f"{attempt.name}: {attempt.failed}")
            else:
                steps[attempt.measured.name] = attempt.step

        if len(steps) < 2:
            raise CaptureError(
                " ".join(["--compare needs two variants that run.", *failures])
            )

        with (
            self._progress.phase(f"profiling {' and '.join(steps)} in turns"),
            end_forked_children(),
        ):
            forget_counts()
            with record_memory(self._snapshots, folder / "turns.pickle"):
                recorder.record(steps, self._options, self._device.kind, folder)

        variants: list[Measured | Failed] = []
        for attempt in attempts:
            if isinstance(attempt, Failed):
                variants.append(attempt)
            else:
                variants.append(self._with_trace(attempt.measured, folder))

        return tuple(variants)

    def _attempt(
        self, trial: Trial, folder: Path, act: Callable[[Trial], Outcome]
    ) -> Outcome | Failed:
        """Return what `act` returns for a trial, or why it failed, after its traces are
        removed. A trial that cannot run here is not tried."""
        if trial.unable:
            was_selected = trial.name in self._options.variants
            return Failed(trial.name, trial.unable, skipped=not was_selected)

        try:
            return act(trial)
        except (Exception, SystemExit) as error:
            for path in folder.glob(f"{trial.name}.json*"):
                path.unlink()
            shutil.rmtree(
                compile_log.folder_beside(folder, trial.name), ignore_errors=True
            )
            return Failed(trial.name, self._public(describe_failure(error)))
        finally:
            if self._device.kind == "cuda":
                torch.cuda.empty_cache()

    def _log_folder(self, trial_name: str, folder: Path, compiles: bool) -> Path | None:
        """Return the folder for the compile log of a trial, or None for no log. A log
        has paths and lines of the user's code, so a scrubbed run has none."""
        if not (compiles and self._options.compile_log) or self._options.scrub:
            return None
        return compile_log.folder_beside(folder, trial_name)

    def _ready(self, trial: Trial, folder: Path) -> ReadyTrial:
        """Build a trial, check the result of its first step, and time it. What it
        compiles is logged in the folder. Raises whatever the user's code raises, and
        WrongResultError."""
        log_folder = self._log_folder(trial.name, folder, trial.compiles)
        name = trial.name
        forget_counts()

        title = f"{'compiling' if trial.compiles else 'checking'} {name}"
        with (
            self._progress.phase(title),
            end_forked_children(),
            compile_log.logged(log_folder),
        ):
            first = self._first_step(trial)

        with self._progress.phase(f"timing {name}"), end_forked_children():
            timing, peak_bytes = self._timed(first.step)

        compiles = trial.compiles or first.graphs > 0
        measured = Measured(
            name=name,
            step_ns=timing.step_ns,
            compile_ns=first.duration_ns if compiles else None,
            compile_cached=was_cached(),
            peak_memory_bytes=peak_bytes,
            max_error=first.errors.result,
            kernels_per_step=0,
            files=(f"{name}.json.gz",),
            max_gradient_error=first.errors.gradient,
            recompilations=graph_count() - first.graphs if compiles else None,
            weight_bytes=step.weight_bytes(first.call),
            warm_up_steps=timing.warm_up_steps,
            settled=timing.settled,
        )
        return ReadyTrial(step=first.step, measured=measured)

    def _first_step(self, trial: Trial) -> _FirstStep:
        """Build a trial, take its first step and check the result. Nothing of the
        result is kept, because it would count as memory of the timed steps."""
        call = trial.build()
        labeled_step = self._step(trial, call)
        begin = perf_counter_ns()
        result = step.run_step(labeled_step)
        step.make_synchronizer(self._device.kind)()
        duration_ns = perf_counter_ns() - begin
        errors = self._check(step.copy_answer(result, trial.copies[0], call))

        return _FirstStep(
            call=call,
            step=labeled_step,
            duration_ns=duration_ns,
            errors=errors,
            graphs=graph_count(),
        )

    def _step(self, trial: Trial, call: Callable[..., Any]) -> Step:
        """Return the step that is timed and recorded, with the label of the job."""
        job = self._job
        if job.backward:
            return step.training_step(call, job.label, trial.copies, job.gradient)
        return step.forward_step(call, job.label, trial.copies)

    def _profiled(self, ready: ReadyTrial, folder: Path) -> Measured:
        """Record the trace of a trial and return its measurements. Raises
        EmptyTraceError for a trace without kernels."""
        measured = ready.measured

        trace_path = folder / f"{measured.name}.json.gz"
        snapshot_path = folder / f"{measured.name}.pickle"
        with self._progress.phase(f"profiling {measured.name}"), end_forked_children():
            forget_counts()

            log_folder = self._log_folder(
                measured.name, folder, measured.compile_ns is not None
            )
            with (
                record_memory(self._snapshots, snapshot_path),
                compile_log.logged(log_folder),
            ):
                recorder.record_one(
                    ready.step, self._options, self._device.kind, trace_path
                )

            return self._with_trace(measured, folder)

    def _with_trace(self, measured: Measured, folder: Path) -> Measured:
        """Return the measurements with what the trace shows, and with the graphs that
        were compiled while it was recorded. Raises EmptyTraceError for a trace without
        kernels of the device."""
        counted = recorder.count_work(folder / f"{measured.name}.json.gz")
        is_of_device = counted.on_gpu == (self._device.kind == "cuda")
        if not is_of_device or not any(counted.counts_of_kind("kernels")):
            raise EmptyTraceError(NO_KERNELS)

        recompilations = measured.recompilations
        if recompilations is not None:
            recompilations += graph_count()

        return replace(
            measured,
            kernels_per_step=counted.mean_per_step("kernels"),
            recompilations=recompilations,
            guesses=compare_guess(self._guesses[measured.name], counted),
        )

    def _check(self, answer: Answer) -> Errors:
        """Return the errors of an answer against the reference of the job. Without one,
        the result is compared with that of the first trial, for information only.

        Raises WrongResultError if the answer differs too much from the reference.
        """
        if self._job.reference is not None:
            return step.check_answer(answer, self._job.reference, self._job.dtype)
        if self._first_answer is None:
            self._first_answer = answer
            return Errors(result=None, gradient=None)
        error = step.compare_answer(answer, self._first_answer)
        return Errors(result=error, gradient=None)

    def _timed(self, labeled_step: Step) -> tuple[step.Timing, int | None]:
        """Return the time per step and, on a GPU, the most memory in bytes that was
        allocated meanwhile; None on a CPU."""
        device_kind = self._device.kind
        if device_kind == "cuda":
            torch.cuda.reset_peak_memory_stats()

        timing = step.time_steps(
            partial(step.run_step, labeled_step),
            device_kind,
            self._options.timing_seconds,
        )
        if device_kind == "cuda":
            return timing, torch.cuda.max_memory_allocated()

        return timing, None


def forget_compiled() -> None:
    """Forget what was compiled in this process, so that it is compiled again. The
    counters of graphs begin at 0."""
    torch._dynamo.reset()
    forget_counts()


def forget_counts() -> None:
    """Set the counters of compiled graphs to 0. What was compiled stays."""
    torch._dynamo.utils.counters.clear()


def graph_count() -> int:
    """How many graphs were compiled since `forget_compiled` or `forget_counts`."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def was_cached() -> bool | None:
    """Return whether Inductor took all its kernels from the cache on disk; None if it
    compiled no graph."""
    if not graph_count():
        return None
    counters = torch._dynamo.utils.counters["inductor"]
    return bool(counters["fxgraph_cache_hit"] and not counters["fxgraph_cache_miss"])
