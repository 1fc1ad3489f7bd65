"""The rule recording: recordings with misleading figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

from fusetui.analysis.questions.launches import mark_graph_calls
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import choose_heaviest_rows
from fusetui.analysis.why.rule import (
    Claim,
    Rule,
    format_share_of_span,
    name_most_frequent,
)
from fusetui.analysis.why.rules.missing_work import find_launch_calls
from fusetui.analysis.why.warming import (
    MIN_STEPS_TO_COMPARE,
    compare_first_step,
    find_graph_captures,
)
from fusetui.text.figures import count, duration, percent, plural, quantity
from fusetui.text.printable import printable
from fusetui.trace.layout.steps import PROFILED, StepLength, Steps, step_wall
from fusetui.trace.model.arrays import NO_ROW, Int64s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import union

MIN_RATIO_OF_FIRST_STEP: Final = 1.5
"""A first step is slow if it takes this many times the median of the other steps."""
MIN_SHARE_UNLINKED: Final = 0.05
"""Events without a launch call are worth a note from this share of the GPU time on."""
MIN_SHARE_IN_REPLAYS: Final = 0.05
"""Waiting inside calls that launch graphs is worth a note from this share of the span
on."""
MIN_SHARE_OF_STEPS_CAPTURED: Final = 0.5
"""The capture of graphs is worth a note from this share of the steps on."""
MAX_STEPS_NAMED: Final = 3
"""How many slow steps a sentence names."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to know about a recording."""

    text: str
    remedy: str
    rows: tuple[int, ...] = ()
    """The evidence, as rows of the trace."""


@Rule(
    without_gpu=True,
    remedy="Record again.",
    thresholds={
        "slow_first": MIN_RATIO_OF_FIRST_STEP,
        "fewest": MIN_STEPS_TO_COMPARE,
        "unlinked": MIN_SHARE_UNLINKED,
        "replays": MIN_SHARE_IN_REPLAYS,
        "captured": MIN_SHARE_OF_STEPS_CAPTURED,
    },
)
def recording(facts: Facts) -> Iterator[Claim]:
    """Note each thing that makes the recording misleading, in a sentence or two."""
    about_steps = list(_note_captures(facts))
    if not about_steps:
        about_steps = list(_note_few_steps(facts))

    notes = [
        *_note_launches_without_events(facts),
        *_note_unlinked_events(facts),
        *_note_first_step(facts),
        *about_steps,
        *_note_stacks(facts),
        *_note_graph_recording(facts),
    ]
    if notes:
        rows: list[int] = []
        for note in notes:
            rows.extend(note.rows)

        yield Claim(
            text=" ".join(note.text for note in notes),
            rows=tuple(rows),
            remedy=" ".join(note.remedy for note in notes),
        )


WITHOUT_GPU_EVENTS: Final = (
    "Check the warnings that the profiler prints when it starts. Close other "
    "profilers and debuggers{nvidia: (Nsight, DCGM, cuda-gdb)}, because only one can "
    "trace the GPU at a time.{nvidia: To allow tracing, load the NVIDIA driver with "
    "NVreg_RestrictProfilingToAdminUsers=0 or start the container with "
    "--cap-add=SYS_ADMIN.} "
    "On WSL, update the Windows driver or record on Linux."
)
"""The remedy where launches were recorded, and nothing that they launched."""
WITHOUT_GPU_EVENTS_OF_NSYS: Final = (
    "Check the warnings of nsys; fusetui prints those that the export contains. "
    "Close other profilers and debuggers (torch.profiler, Nsight Compute, DCGM, "
    "cuda-gdb), because only one can trace the GPU at a time. To allow tracing, load the "
    "NVIDIA driver with NVreg_RestrictProfilingToAdminUsers=0 or start the container "
    "with --cap-add=SYS_ADMIN."
)
"""The same remedy, where Nsight Systems recorded them."""
WITHOUT_COUNTERS: Final = (
    "Record without profiler_metrics, which makes "
    "torch.profiler record counter ranges instead of kernels."
)
"""The same remedy, where ranges of counters were recorded."""


def _note_launches_without_events(facts: Facts) -> Iterator[Note]:
    """Note that launch calls were recorded and no GPU event at all.

    Only of a file that is complete: otherwise the events may be in what is missing.
    """
    trace = facts.trace
    launches = find_launch_calls(facts)
    if len(trace.gpu_rows) or not len(launches) or not trace.report.complete:
        return

    has_counters = len(trace.rows_of(Role.DEVICE)) > 0
    received = "only counter ranges" if has_counters else "nothing"
    text = (
        f"{_describe_launches(trace, launches)} recorded, but no GPU events: the "
        f"profiler received {received} from the GPU."
    )
    if has_counters:
        text += (
            " CPU times are not meaningful: the launch calls include measuring the "
            "counters, which takes much longer than launching."
        )
        remedy = WITHOUT_COUNTERS
    elif trace.report.writer == "nsys":
        remedy = WITHOUT_GPU_EVENTS_OF_NSYS
    else:
        remedy = WITHOUT_GPU_EVENTS

    yield Note(
        text=text,
        remedy=remedy,
        rows=choose_heaviest_rows(launches, trace.dur[launches]),
    )


def _describe_launches(trace: Trace, launches: Rows) -> str:
    """Describe launch calls: `12 launch calls (mostly cudaLaunchKernel) were`."""
    were = "was" if len(launches) == 1 else "were"
    calls = plural(len(launches), "launch call")
    return f"{calls} ({name_most_frequent(trace, launches)}) {were}"


def _note_stacks(facts: Facts) -> Iterator[Note]:
    """Note that Python stacks were recorded while the GPU waited for the CPU."""
    if facts.is_slowed_by_stacks:
        yield Note(
            text="CPU times include profiling overhead, because Python stacks were "
            "recorded. The GPU waited for the CPU, so the program may be faster "
            "without stack recording.",
            remedy=(
                "To measure times, record again without stacks "
                "(with_stack=False). Keep this trace for its Python frames."
            ),
        )


def _note_graph_recording(facts: Facts) -> Iterator[Note]:
    """Note that the GPU waits inside the calls that launch graphs.

    That must be MIN_SHARE_IN_REPLAYS of the span or more.
    """
    trace = facts.trace
    launch = facts.gaps.launch
    waited_ns = facts.gaps.add_up_reasons("launch_call")
    launches_graph = facts.gaps.has_launch & mark_graph_calls(trace)[launch]
    is_replay = launches_graph & (waited_ns > 0)
    replay_ns = int(waited_ns[is_replay].sum())
    if not replay_ns or replay_ns < MIN_SHARE_IN_REPLAYS * facts.span_ns:
        return

    replays = launch[is_replay]
    name = printable(trace.name_of(int(replays[0])))

    yield Note(
        text=f"The GPU waits {format_share_of_span(facts, replay_ns)} inside {name}. "
        "Recording graph nodes slows down this call.",
        remedy="Time the step without the profiler to see how much of this remains.",
        rows=choose_heaviest_rows(replays, waited_ns[is_replay]),
    )


def _note_unlinked_events(facts: Facts) -> Iterator[Note]:
    """Note GPU events without a launch call beside others that have one."""
    trace = facts.trace
    events = facts.gpu_rows
    unlinked_events = events[trace.launch[events] == NO_ROW]
    unlinked_ns = int(trace.dur[unlinked_events].sum())
    all_ns = int(trace.dur[events].sum())
    if not facts.has_launches or not all_ns:
        return
    if unlinked_ns < MIN_SHARE_UNLINKED * all_ns:
        return

    yield Note(
        text=f"The launch calls of {plural(len(unlinked_events), 'GPU event')} "
        f"({percent(unlinked_ns, all_ns)} of GPU time) are not in the trace: "
        "they ran before the trace began, or were not recorded.",
        remedy="Call torch.{intel:xpu|:cuda}.synchronize() right before the recorded "
        "steps begin, so that no earlier work runs during them.",
        rows=choose_heaviest_rows(unlinked_events, trace.dur[unlinked_events]),
    )


def _note_first_step(facts: Facts) -> Iterator[Note]:
    """Note that the first step takes much longer than the others.

    That is MIN_RATIO_OF_FIRST_STEP times the median of the others or more. If the first
    step is not the longest, the note names all steps that take as long.
    """
    intervals = facts.step_intervals
    step = compare_first_step(facts.steps, intervals)
    if intervals is None or step is None or not step.others_ns:
        return

    least_ns = MIN_RATIO_OF_FIRST_STEP * step.others_ns
    if step.first_ns < least_ns:
        return

    lengths = intervals.end - intervals.start
    slow_steps = np.flatnonzero(lengths >= least_ns)
    longest_first = slow_steps[np.argsort(-lengths[slow_steps], kind="stable")]
    is_first_longest = longest_first[0] == 0
    if not is_first_longest:
        yield _make_slow_steps_note(
            facts.steps, intervals.length, lengths, longest_first, step.others_ns
        )
        return

    times_as_long = quantity(step.first_ns / step.others_ns, digits=2)
    usual = duration(round(step.others_ns))

    yield Note(
        text=f"The first {intervals.length.step} takes {duration(step.first_ns)}, "
        f"{times_as_long} times as long as the median of the others "
        f"({usual}){_describe_later_steps(facts.steps, lengths, longest_first[1:])}.",
        remedy="Analyze a later step (--step), or warm up longer before recording.",
        rows=tuple(facts.steps.rows[longest_first[:MAX_STEPS_NAMED]].tolist()),
    )


def _describe_later_steps(steps: Steps, lengths: Int64s, later: Rows) -> str:
    """Say how many later steps take long as well, and how long the longest takes.

    Args:
        lengths: The length of each step, in ns.
        later: The indices of the later steps, the longest first; "" is returned for
            none.
    """
    if not len(later):
        return ""

    takes = "takes" if len(later) == 1 else "take"
    longest = int(later[0])
    return (
        f"; {plural(len(later), 'later step')} {takes} at least {MIN_RATIO_OF_FIRST_STEP} times "
        f"that median, up to {duration(int(lengths[longest]))} ({printable(steps.names[longest])})"
    )


def _make_slow_steps_note(
    steps: Steps, length: StepLength, lengths: Int64s, slow: Rows, usual_ns: float
) -> Note:
    """Make the note about slow steps, for a trace whose longest step is not its first.

    Args:
        length: Which length of steps it is.
        lengths: The length of each step, in ns.
        slow: The indices of the slow steps, the longest first.
        usual_ns: The median length of all steps but the first.
    """
    named = []
    for index in slow[:MAX_STEPS_NAMED].tolist():
        first = ", the first step" if index == 0 else ""
        takes = duration(int(lengths[index]))
        named.append(f"{printable(steps.names[index])} ({takes}{first})")

    end = ", ..." if len(slow) > MAX_STEPS_NAMED else "."
    return Note(
        text=f"{count(len(slow))} of {plural(len(steps), 'step')} ({length}) take at "
        f"least {MIN_RATIO_OF_FIRST_STEP} times the median of the later steps "
        f"({duration(round(usual_ns))}): {', '.join(named)}{end}",
        remedy="Compare the steps (fusetui steps), and analyze a typical one (--step).",
        rows=tuple(steps.rows[slow[:MAX_STEPS_NAMED]].tolist()),
    )


def _note_captures(facts: Facts) -> Iterator[Note]:
    """Note that graphs are captured for half of the time of the steps or more."""
    steps = facts.steps
    captured = find_graph_captures(facts.trace)
    capturing = union(captured.start, captured.end)
    captured_ns = int(capturing.within(steps.start, steps.end).sum())
    all_ns = int(step_wall(steps.start, steps.end).sum())
    if all_ns > 0 and captured_ns >= MIN_SHARE_OF_STEPS_CAPTURED * all_ns:
        yield Note(
            text=f"Graph capture takes {duration(captured_ns)} of "
            f"{plural(len(steps), 'step')} ({percent(captured_ns, all_ns)}). "
            "Work launched during capture becomes part of the graph and does "
            "not run.",
            remedy="Record replays of the graph to see its cost.",
            rows=tuple(captured.rows[:MIN_STEPS_TO_COMPARE].tolist()),
        )


def _note_few_steps(facts: Facts) -> Iterator[Note]:
    """Note that fewer than MIN_STEPS_TO_COMPARE steps were recorded, if more can be
    recorded.

    Nothing is noted of a selected part of a trace. Neither is it of steps that are no
    iterations and do not come from the profiler's schedule, such as those of a server.
    """
    steps = facts.steps
    is_part = facts.window is not None
    are_few = 0 < len(steps) < MIN_STEPS_TO_COMPARE
    has_schedule = steps.by == PROFILED
    can_record_more = has_schedule or steps.are_iterations
    if is_part or not are_few or not can_record_more:
        return

    remedy = f"Record at least {MIN_STEPS_TO_COMPARE} steps."
    if has_schedule:
        remedy = f"Set active={MIN_STEPS_TO_COMPARE} or more in the profiler schedule."

    yield Note(
        text=(
            f"Only {plural(len(steps), 'step')} "
            f"{'was' if len(steps) == 1 else 'were'} recorded, so other steps may take more or less time."
        ),
        remedy=remedy,
        rows=tuple(steps.rows.tolist()),
    )
