"""`diff`: what changed from one trace or run folder to another."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Answer, Diff
from fusetui.commands.errors import CommandError, say
from fusetui.commands.loading import LoadedTrace, load, one_form
from fusetui.commands.sources import folders_below, is_run, only_below, traces
from fusetui.report.diff import DiffsDocument, document, judgment, to_markdown, to_text
from fusetui.report.output import emit, emit_json, width

if TYPE_CHECKING:
    from fusetui.analysis.compiled.fused import FusedKernel
    from fusetui.commands.verdicts import Case
    from fusetui.report.diff import DiffDocument
    from fusetui.trace import Trace


class Pair(NamedTuple):
    """The names of two traces that are compared."""

    a: str
    b: str


def run_diff(args: Namespace) -> int:
    """Compares two traces, the files of two folders or the variants of a run. Raises
    CommandError if it is unclear what to compare, and NoStepsError."""
    one_form(args, "markdown")
    if args.fail_over is None and (args.github or args.junit is not None):
        raise CommandError(
            "--github and --junit report a verdict, so they need --fail-over."
        )
    pairs = _pairs(args.a, args.b, args.baseline)
    loaded: dict[str, LoadedTrace] = {}
    diffs: list[Diff] = []
    for pair in pairs:
        for name in pair:
            if name not in loaded:
                loaded[name] = load(name, (), args.compile_log)
        trace_a = loaded[pair.a].trace
        trace_b = loaded[pair.b].trace
        diffs.append(diff(trace_a, trace_b, step_by=args.step_by))
    if args.json:
        documents = [document(found) for found in diffs]
        for place, pair in enumerate(pairs):
            documents[place] = _with_fused(documents[place], loaded[pair.b].trace)
        is_single = len(documents) == 1  # else the document is a list
        emit_json(documents[0] if is_single else DiffsDocument(documents))
    elif args.markdown:
        emit("\n".join(to_markdown(found) for found in diffs))
    else:
        emit("\n".join(to_text(found, width()) for found in diffs))
        _print_fused([loaded[pair.b].trace for pair in pairs])
    if args.fail_over is None:
        return max(one.code for one in loaded.values())
    traces = {name: one.trace for name, one in loaded.items()}
    return _verdict(args, traces, pairs, diffs)


MAX_FUSED = 10
"""Kernels of each B whose lines are named in the text."""


def _fused(trace: Trace) -> tuple[FusedKernel, ...]:
    """The kernels of a trace that several lines became, by its compile log; () without
    one. Raises TraceError if a log that was named cannot be read."""
    from fusetui.trace.model.op_names import is_compiler

    if not any(map(is_compiler, trace.names)):
        return ()
    from fusetui.analysis.compiled.finding import compile_log_of
    from fusetui.analysis.compiled.fused import fused_kernels

    return fused_kernels(trace, compile_log_of(trace))


def _print_fused(compiled: Sequence[Trace]) -> None:
    """Which lines became one kernel in each of these traces."""
    for trace in compiled:
        kernels = _fused(trace)
        if kernels:
            from fusetui.report.compiled import fused_text

            emit(f"{fused_text(kernels, width(), MAX_FUSED)}\n")


def _with_fused(document: DiffDocument, trace: Trace) -> DiffDocument:
    """The document with the fused kernels of B, if its compile log tells any."""
    kernels = _fused(trace)
    if not kernels:
        return document
    from fusetui.report import printed
    from fusetui.report.compiled import FusedDiffDocument

    return printed(document, FusedDiffDocument, fused=kernels)


def _pairs(a: str, b: str | None, baseline: str | None) -> list[Pair]:
    """The pairs to compare: two traces; the files of equal names in two folders; or in
    one run folder, the baseline (by default the first variant) with every other
    variant. Raises CommandError."""
    if b is None:
        return _pairs_of_variants(a, baseline)
    if baseline is not None:
        raise CommandError(
            "--baseline needs a single run folder: omit the second trace."
        )
    if not (os.path.isdir(a) and os.path.isdir(b)):
        return [Pair(a, b)]
    paths_in_b = {os.path.basename(path): path for path in traces(b)}
    pairs = []
    for path in traces(a):
        path_in_b = paths_in_b.get(os.path.basename(path))
        if path_in_b is not None:
            pairs.append(Pair(path, path_in_b))
    if not pairs:
        raise CommandError(f"{a} and {b} have no file name in common.")
    return pairs


def _pairs_of_variants(folder: str, baseline: str | None) -> list[Pair]:
    """The baseline of a run folder with every other variant. Raises CommandError."""
    run = only_below(folder) if folders_below(folder) else folder
    if os.path.isdir(run) and not is_run(run):
        raise CommandError(
            f"{run} is not a run folder: add a second trace or folder to compare with."
        )
    paths = traces(run) if is_run(run) else []
    if len(paths) < 2:
        raise CommandError(f"Nothing to compare {folder} with: add a second trace.")
    path_of_variant = {_variant(path): path for path in paths}
    if baseline is None:
        first = paths[0]
    elif baseline in path_of_variant:
        first = path_of_variant[baseline]
    else:
        known = ", ".join(path_of_variant)
        raise CommandError(f"{folder} has no variant {baseline}, only {known}.")
    return [Pair(first, path) for path in paths if path != first]


def _variant(path: str) -> str:
    """The name of the variant whose trace this is: `eager` of `run/eager.json.gz`."""
    return Path(path).name.removesuffix(".gz").removesuffix(".json")


def _verdict(
    args: Namespace,
    traces: Mapping[str, Trace],
    pairs: Sequence[Pair],
    diffs: Sequence[Diff],
) -> int:
    """Reports what --fail-over says of each pair, and of each trace that is not whole;
    returns the exit code."""
    from fusetui.commands.verdicts import file_of, told, unread

    not_whole = [name for name, trace in traces.items() if not trace.report.whole]
    cases = []
    for pair, found in zip(pairs, diffs, strict=True):
        if pair.a not in not_whole and pair.b not in not_whole:
            file = file_of(traces[pair.b])
            cases.append(_case(found, args.fail_over, file))
    if not args.github:
        say(*(case.said for case in cases if case.outcome.is_told))
    cases += [unread(name) for name in not_whole]
    return told(args, cases, map(to_markdown, diffs))


def _case(found: Diff, percent: float, file: str) -> Case:
    """Whether B is slower than A by more than so many percent, even by the low end of
    the interval of its ratio."""
    from fusetui.commands.verdicts import Case, Outcome

    pair = f"{found.a} -> {found.b}"
    step = found.step
    if found.verdict.answer is Answer.CANNOT_TELL:
        outcome = Outcome.CANNOT_TELL
        said = f"inconclusive whether B is slower: {found.verdict.reason or ''}."
    elif (step.low or 0) <= 1 + percent / 100:
        outcome = Outcome.PASSED
        said = f"{judgment(found)}."
    else:
        outcome = Outcome.FAILED
        by = f"{step.ratio:.3f} times as long as A's"
        said = f"B's {step.length_b.step} is more than {percent:g} % slower: {by}."
    return Case(name=pair, outcome=outcome, said=f"{pair}: {said}", file=file)
