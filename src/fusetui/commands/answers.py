"""The commands that answer one question about a trace with a table: `summary`,
`kernels`, ...

Each imports what it needs when it runs.
"""

from __future__ import annotations

import math
import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from textwrap import wrap
from typing import TYPE_CHECKING

from fusetui.commands.errors import DONE, NO, UNUSABLE, CommandError, say
from fusetui.commands.loading import LoadedTrace, load, secret_notices
from fusetui.report.output import emit_json_of, emit_of, width
from fusetui.text.figures import plural, several
from fusetui.text.printable import markdown, printable

if TYPE_CHECKING:
    from fusetui.analysis.questions.summary import Summary
    from fusetui.capture.record import Guess
    from fusetui.gpu.roofline.many import Jobs
    from fusetui.report.groups import KernelsDocument
    from fusetui.trace import Trace

LONG = 0.02  # of the span: a gap that changes what the share of busy time means
LEAST = 1e9
"""Per second. A smaller peak is taken for TFLOP/s or TB/s without the exponent, and
rejected."""


def shown(
    args: Namespace,
    loaded: LoadedTrace,
    document: Callable[[], object],
    text: Callable[[int], str],
) -> int:
    """Prints an answer, as JSON or as text of a width; returns the exit code of
    reading."""
    if args.json:
        emit_json_of(loaded.trace, document())
    else:
        emit_of(loaded.trace, text(width()))
    return loaded.code


def run_summary(args: Namespace) -> int:
    """Key figures of the whole trace."""
    from fusetui.analysis.questions.summary import summary

    trace, _ = loaded = load(args.trace, args.captured_by)
    say(*secret_notices(trace))
    figures = summary(trace)

    # imports the decoders of kernel names, which --json does not need
    def text(most: int) -> str:
        from fusetui.analysis.questions.totals import kernel_totals, op_totals
        from fusetui.report.summary import summary_text

        totals = kernel_totals(trace), op_totals(trace)
        return summary_text(figures, *totals, most, _cut_off(trace, figures))

    return shown(args, loaded, lambda: figures, text)


def _cut_off(trace: Trace, figures: Summary) -> bool:
    """Whether the GPU probably finishes work from before the recording in an idle time,
    as `why` says; asked only where a stream begins after a long one."""
    import numpy as np

    rows = trace.gpu_rows[np.argsort(trace.start[trace.gpu_rows], kind="stable")]
    before = np.maximum.accumulate(trace.end[rows])[:-1]
    after = rows[1:][trace.start[rows[1:]] - before > LONG * figures.gpu_span_ns]
    first = rows[np.unique(trace.track[rows], return_index=True)[1]]
    if not np.isin(after, first).any():
        return False
    from fusetui.analysis.why.answer import why
    from fusetui.report.why_answer import cut_off

    return bool(cut_off(why(trace)))


def run_kernels(args: Namespace) -> int:
    """The kernels, grouped by name, op, shape and so on."""
    from fusetui.analysis.questions.groups import kernel_groups
    from fusetui.analysis.questions.search import why_no_kernels
    from fusetui.gpu.roofline.many import jobs, peaks_of_devices
    from fusetui.report.groups import kernels_json, kernels_text

    given = given_peaks(args.peak)
    loaded = load(args.trace, args.captured_by)
    trace = with_device(loaded.trace, args.device)
    known = jobs(trace, given=given)
    groups = kernel_groups(trace, known, args.by)

    def text(most: int) -> str:
        if not groups:
            return "\n".join(wrap(why_no_kernels(trace), most))
        return kernels_text(
            groups, args.by, args.top, most, peak_notices(trace, known, given)
        )

    def document() -> KernelsDocument:
        return kernels_json(groups, args.by, peaks_of_devices(trace, given))

    return shown(args, loaded, document, text)


def run_ops(args: Namespace) -> int:
    """The CPU ops by name or shape."""
    from fusetui.analysis.questions.groups import op_groups
    from fusetui.report.groups import OpsDocument, ops_text

    loaded = load(args.trace, args.captured_by)
    groups = op_groups(loaded.trace, args.by)
    text = partial(ops_text, groups, args.by, args.top)
    return shown(args, loaded, lambda: OpsDocument(args.by, groups), text)


def run_modules(args: Namespace) -> int:
    """What the modules of the program cost."""
    from msgspec.structs import asdict

    from fusetui.report.documents import ModulesDocument
    from fusetui.report.program import modules_text
    from fusetui.trace.model.categories import Role
    from fusetui.trace.program.modules import module_times
    from fusetui.trace.program.origin import origins, phases

    trace, _ = loaded = load(args.trace, args.captured_by)
    found = origins(trace)
    times, by_phase = module_times(found, args.expand), phases(found)
    stacks, form = len(trace.rows_of(Role.PYTHON)) > 0, trace.report.format
    text = partial(modules_text, times, by_phase, args.top, stacks=stacks, form=form)
    return shown(
        args, loaded, lambda: ModulesDocument(**asdict(times), phases=by_phase), text
    )


def run_lines(args: Namespace) -> int:
    """What the user's own Python functions cost."""
    from fusetui.analysis.why.causes import idle_causes
    from fusetui.report.program import functions_text
    from fusetui.trace.program.functions import function_times
    from fusetui.trace.program.origin import origins

    trace, _ = loaded = load(args.trace, args.captured_by)
    times = function_times(
        origins(trace), args.file, idle_causes(trace), args.by == "line"
    )
    say_why_no_lines(trace, args, bool(times.functions))
    text = partial(functions_text, times, args.top, form=trace.report.format)
    return shown(args, loaded, lambda: times, text)


def say_why_no_lines(trace: Trace, args: Namespace, found: bool) -> None:
    """Why `lines` has not found what was asked for, if it has not."""
    from fusetui.trace.model.report import recorded_with
    from fusetui.trace.program.functions import has_lines

    if args.by == "line" and not has_lines(trace):
        stacks = recorded_with("with_stack=True", trace.report.format)
        raise CommandError(
            f"The calling lines were not recorded: {stacks} does (torch 2.14)."
        )
    if args.file is not None and not found:
        say(f"No Python frame of this trace is in {printable(args.file)}.")


def run_launches(args: Namespace) -> int:
    """What launching GPU work cost the CPU, and how long the launch queue was."""
    from fusetui.analysis.questions.launches import (
        length_of,
        queues,
        replays,
        thread_launches,
    )
    from fusetui.report.documents import LaunchesDocument
    from fusetui.report.program import launches_text

    trace, _ = loaded = load(args.trace, args.captured_by)
    found = thread_launches(trace), replays(trace), tuple(map(length_of, queues(trace)))
    document = partial(LaunchesDocument, str(trace.begin_ns), *found)
    return shown(args, loaded, document, partial(launches_text, *found))


def run_serving(args: Namespace) -> int:
    """The steps of an inference server, and the least time that they can take. Raises
    NoConfigError if the configuration of the model cannot be used."""
    from fusetui.analysis.serving.answer import serving
    from fusetui.analysis.serving.config import read_config
    from fusetui.report.serving import serving_json, serving_text

    given = given_peaks(args.peak)
    config = read_config(args.model_config) if args.model_config else None
    loaded = load(args.trace, args.captured_by)
    found = serving(with_device(loaded.trace, args.device), config, given)
    return shown(
        args,
        loaded,
        lambda: serving_json(found),
        lambda most: serving_text(found, most),
    )


def run_check(args: Namespace) -> int:
    """Compares a guess about the kernels of a trace with the trace; 1 if any guess is
    wrong."""
    from fusetui.analysis.questions.computing import tallies
    from fusetui.capture.record import compare, parse
    from fusetui.report.documents import CheckDocument, GuessDocument

    expected = parse(args.expect)
    loaded = load(args.trace)
    counted = tallies(loaded.trace)
    guesses = compare(expected, counted)
    right = all(guess.right for guess in guesses)

    def document() -> CheckDocument:
        return CheckDocument(
            per="step" if counted.steps else "trace",
            steps=list(counted.steps),
            counted="kernels" if counted.on_gpu else "cpu_ops",
            right=right,
            guesses=[
                GuessDocument(g.kind, g.expected, g.found, g.right) for g in guesses
            ],
        )

    on_cpu = "CPU ops that compute (the trace has no GPU events)"
    steps = f"in each of {plural(len(counted.steps), 'step')}"
    where = steps if counted.steps else "in the whole trace, which has no steps"
    counts = f"{'kernels' if counted.on_gpu else on_cpu} {where}"

    def text(_: int) -> str:
        """A line per term; `=` marks a right guess, `!` a wrong one."""
        wide = max(len(guess.kind) for guess in guesses)
        lines = (
            f"  {'=' if g.right else '!'} {g.kind:{wide}}  guess {g.expected:>4}   found {g.said}"
            for g in guesses
        )
        return "\n".join([f"Counted {counts}:", *lines])

    code = max(shown(args, loaded, document, text), DONE if right else NO)
    if not loaded.trace.report.whole:
        code = UNUSABLE
    if args.github or args.junit is not None:
        return _told(args, loaded, guesses, counts)
    return code


def _told(
    args: Namespace, loaded: LoadedTrace, guesses: Iterable[Guess], counts: str
) -> int:
    """Tells a pipeline the verdict; the exit code of `check`."""
    from fusetui.commands.verdicts import Case, Outcome, file_of, told, unread
    from fusetui.report.output import notes_of

    trace, name = loaded.trace, loaded.trace.report.file
    cases = [
        Case(
            f"{one.kind}={one.expected}",
            Outcome.PASSED if one.right else Outcome.FAILED,
            f"{name}: guess {one.kind}={one.expected}, found {one.said} (counted {counts}).",
            file_of(trace),
        )
        for one in guesses
    ]
    cases += [] if trace.report.whole else [unread(name)]
    return told(args, cases, [f"* {markdown(one)}" for one in notes_of(trace)])


def given_peaks(texts: Iterable[str]) -> dict[str, float]:
    """`bf16=800e12` -> {"bf16": 800e12}: FLOP/s, and bytes/s for bandwidth. Raises
    CommandError."""
    from fusetui.gpu.roofline.peaks import BANDWIDTH, KINDS

    found: dict[str, float] = {}
    for text in texts:
        kind, _, figure = text.partition("=")
        if kind not in (*KINDS, BANDWIDTH):
            known = f"{', '.join(KINDS)} and {BANDWIDTH}"
            raise CommandError(f"--peak {text}: the kind must be one of {known}.")
        try:
            value = float(figure)
        except ValueError:
            value = math.nan
        if not LEAST <= value < math.inf:
            unit, example = (
                ("bytes", "3.35e12") if kind == BANDWIDTH else ("FLOP", "989e12")
            )
            raise CommandError(
                f"--peak {text}: the figure must be a number of {unit} per second, as in "
                f"{kind}={example}."
            )
        found[kind] = value
    return found


def with_device(trace: Trace, name: str | None) -> Trace:
    """The trace with devices of this model, one of the table of peaks. Raises
    CommandError, also if the trace itself says what its devices are."""
    if name is None:
        return trace
    from msgspec.structs import replace

    from fusetui.gpu.roofline.peaks import PEAKS
    from fusetui.trace.layout.devices import device_ids, device_names

    if recorded := device_names(trace):
        was = several(recorded, 3)
        raise CommandError(
            f"--device {name}: the trace was recorded on {was}; --peak has figures."
        )
    found = next((peak for peak in PEAKS if re.search(peak.pattern, name)), None)
    if found is None:
        raise CommandError(
            f"--device {name}: the table of peaks has no such device; give the name that the "
            "driver gives it, as in 'H100 80GB HBM3', or its figures with --peak."
        )
    listed = [{"id": n, "name": name, "numSms": found.sms} for n in device_ids(trace)]
    return replace(trace, keys={**trace.keys, "deviceProperties": listed})


def peak_notices(trace: Trace, known: Jobs, given: dict[str, float]) -> Iterator[str]:
    """Sentences about why FLOP, bytes or shares of peak are missing."""
    from fusetui.gpu.roofline.many import peaks_of_devices
    from fusetui.trace.model.ids import device_label
    from fusetui.trace.model.report import recorded_with

    if not known.inputs.distinct:
        option = recorded_with("record_shapes=True", trace.report.format)
        yield f"No shapes were recorded ({option}), so FLOP and bytes are not known."
        return
    without = [one for one in peaks_of_devices(trace, given) if one.peak is None]
    labels = [one.name or device_label(one.device) for one in without]
    # With an article, unless it is named or a number tells which device it is.
    named = [
        label if one.name or label[-1:].isdigit() else f"the {label}"
        for one, label in zip(without, labels, strict=True)
    ]
    if named:
        yield (
            f"The peaks of {several(list(dict.fromkeys(named)), 3)} are not known: give them "
            "with --peak, as in --peak bf16=989e12 --peak bandwidth=3.35e12."
        )
