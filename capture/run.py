"""Runs the variants of a job one after another: check, time, profile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import TypeVar

import torch

from . import recorder, step
from .errors import CaptureError, Progress, sentence
from .guard import parent_only
from .job import SEED, Job, Trial
from .memory import memory_history, takes_snapshots
from .options import Options
from .provenance import CaptureDevice, new_record, texts
from .record import Failed, Measured, RunRecord, compare, parse_for
from .step import Answer, Step

NO_KERNELS = "the profiler recorded no kernels: KINETO_LOG_LEVEL=0 makes it say why."


class EmptyTraceError(Exception):
    """The profiler ran but saw no kernels, for instance for lack of permission to read
    counters."""


T = TypeVar("T")


Ready = tuple[Step, Measured]
"""A trial that was checked and timed, without what its trace tells."""


class Runner:
    """Runs the trials of a job one after another, into one folder. Its only state is
    the answer that later trials are compared with if the job has none."""

    def __init__(
        self, job: Job, options: Options, device: CaptureDevice, progress: Progress
    ) -> None:
        self._job = job
        self._options = options
        self._device = device
        self._progress = progress
        self._first_answer: Answer | None = None
        self._public = texts().scrub if options.scrub else str
        self._guesses = parse_for(options.expect, [trial.name for trial in job.trials])
        self._snapshots = takes_snapshots(options, device.kind)

    def run(self, folder: Path, where: Path) -> RunRecord:
        """Writes the traces into the folder and returns the measurements. If a trial
        fails, the others still run. `where` is the folder of the user's code."""
        import torch._inductor.config

        # The profiler sees Inductor's fused C++ kernels, which are hidden by default.
        torch._inductor.config.cpp.enable_kernel_profile = True
        job = self._job
        options = self._options
        with (
            nullcontext()
            if job.keeps_gradients
            else torch.set_grad_enabled(job.backward)
        ):
            if options.compare:
                outcomes = self._in_turns(folder)
            else:
                outcomes = self._one_by_one(folder)
        return new_record(
            self._device,
            options,
            where,
            self._public,
            workload=self._public(job.workload),
            summary=self._public(job.summary),
            shapes=job.shapes,
            shapes_shrunk=job.shapes_shrunk,
            dtype=job.dtype,
            seed=SEED,
            profiled_steps=options.profiled_steps,
            variants=outcomes,
            backward=job.backward,
            mode=options.mode,
        )

    def _one_by_one(self, folder: Path) -> tuple[Measured | Failed, ...]:
        def whole(trial: Trial) -> Measured:
            forget_compiled()
            return self._profiled(self._ready(trial), folder)

        return tuple(
            self._attempt(trial, folder, partial(whole, trial))
            for trial in self._job.trials
        )

    def _in_turns(self, folder: Path) -> tuple[Measured | Failed, ...]:
        """All are made ready first; what was compiled is kept. Raises CaptureError
        without two."""
        forget_compiled()
        made = [
            self._attempt(trial, folder, partial(self._ready, trial))
            for trial in self._job.trials
        ]
        steps = {one[1].name: one[0] for one in made if not isinstance(one, Failed)}
        if len(steps) < 2:
            failed = [
                f"{one.name}: {one.failed}" for one in made if isinstance(one, Failed)
            ]
            raise CaptureError(
                " ".join(["--compare needs two variants that run.", *failed])
            )
        with (
            self._progress.phase(f"profiling {' and '.join(steps)} in turns"),
            parent_only(),
        ):
            forget_counts()
            with memory_history(self._snapshots, folder / "turns.pickle"):
                recorder.record(steps, self._options, self._device.kind, folder)
        return tuple(
            one if isinstance(one, Failed) else self._read(one[1], folder)
            for one in made
        )

    def _attempt(self, trial: Trial, folder: Path, act: Callable[[], T]) -> T | Failed:
        if trial.unable:
            return Failed(
                trial.name, trial.unable, trial.name not in self._options.variants
            )
        try:
            return act()
        except (Exception, SystemExit) as error:
            for path in folder.glob(f"{trial.name}.json*"):
                path.unlink()
            return Failed(trial.name, self._public(sentence(error)))
        finally:
            if self._device.kind == "cuda":
                torch.cuda.empty_cache()

    def _ready(self, trial: Trial) -> Ready:
        kind = self._device.kind
        name = trial.name
        forget_counts()
        first = f"{'compiling' if trial.compiles else 'checking'} {name}"
        with self._progress.phase(first), parent_only():
            call = trial.build()
            parts = step.forward_step(call, self._job.label, trial.copies)
            if self._job.backward:
                parts = step.training_step(
                    call, self._job.label, trial.copies, self._job.gradient
                )
            begin = perf_counter_ns()
            result = step.run_step(parts)
            step.synchronizer(kind)()
            first_ns = perf_counter_ns() - begin  # including any compilation
            error, of_gradients = self._check(
                step.answer(result, trial.copies[0], call)
            )
            graphs = graph_count()
        del result
        with self._progress.phase(f"timing {name}"), parent_only():
            timed, peak_bytes = self._timed(parts)
        compiled = trial.compiles or graphs > 0
        measured = Measured(
            name=name,
            step_ns=timed.step_ns,
            compile_ns=first_ns if compiled else None,
            compile_cached=was_cached(),
            peak_memory_bytes=peak_bytes,
            max_error=error,
            kernels_per_step=0,
            files=(f"{name}.json.gz",),
            max_gradient_error=of_gradients,
            recompilations=graph_count() - graphs if compiled else None,
            weight_bytes=step.weight_bytes(call),
            warm_up_steps=timed.warm_up_steps,
            settled=timed.settled,
        )
        return parts, measured

    def _profiled(self, ready: Ready, folder: Path) -> Measured:
        parts, measured = ready
        path = folder / f"{measured.name}.json.gz"
        with self._progress.phase(f"profiling {measured.name}"), parent_only():
            forget_counts()
            with memory_history(self._snapshots, folder / f"{measured.name}.pickle"):
                recorder.record_one(parts, self._options, self._device.kind, path)
            return self._read(measured, folder)

    def _read(self, measured: Measured, folder: Path) -> Measured:
        """With what its trace tells, and the graphs that were compiled meanwhile."""
        counted = recorder.counted(folder / f"{measured.name}.json.gz")
        if not any(counted.found("kernels")) or counted.on_gpu != (
            self._device.kind == "cuda"
        ):
            raise EmptyTraceError(NO_KERNELS)
        before = measured.recompilations
        return replace(
            measured,
            kernels_per_step=counted.per_step("kernels"),
            recompilations=None if before is None else before + graph_count(),
            guesses=compare(self._guesses[measured.name], counted),
        )

    def _check(self, answer: Answer) -> tuple[float | None, float | None]:
        """The errors of the result and the gradients against the reference, or if there
        is none, that of the result against the first trial's."""
        if self._job.reference is not None:
            return step.check_answer(answer, self._job.reference, self._job.dtype)
        if self._first_answer is None:
            self._first_answer = answer
            return None, None
        return step.compare_answer(answer, self._first_answer), None

    def _timed(self, parts: Step) -> tuple[step.Timing, int | None]:
        """Time per step, and on a GPU the most memory that was allocated meanwhile, in
        bytes."""
        call = partial(step.run_step, parts)
        kind = self._device.kind
        if kind == "cuda":
            torch.cuda.reset_peak_memory_stats()
        timed = step.time_steps(call, kind, self._options.timing_seconds)
        peak_bytes = torch.cuda.max_memory_allocated() if kind == "cuda" else None
        return timed, peak_bytes


def forget_compiled() -> None:
    """Makes each variant compile anew, whatever was compiled before in this process."""
    torch._dynamo.reset()
    forget_counts()


def forget_counts() -> None:
    """Makes the counters start anew; what was compiled stays."""
    torch._dynamo.utils.counters.clear()


def graph_count() -> int:
    """How many graphs were compiled since `forget_compiled` or `forget_counts`."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def was_cached() -> bool | None:
    """Whether Inductor took its kernels from the cache on disk; None if it compiled no
    graph."""
    if not graph_count():
        return None
    counters = torch._dynamo.utils.counters["inductor"]
    return bool(counters["fxgraph_cache_hit"] and not counters["fxgraph_cache_miss"])
