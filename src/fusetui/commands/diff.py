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
from fusetui.commands.loading import LoadedTrace, load, reject_two_forms
from fusetui.commands.sources import (
    find_folders_below,
    find_only_folder,
    is_run_folder,
    traces,
)
from fusetui.report.diff import (
    DiffsDocument,
    document,
    format_diff,
    format_markdown,
    judgment,
)
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
    """Print what changed between two traces, the files of two folders, or the variants
    of a run. With --fail-over, report a verdict and return its exit code.

    Raises CommandError if it is unclear what to compare, and NoStepsError.
    """
    reject_two_forms(args, "markdown")
    if args.fail_over is None and (args.github or args.junit is not None):
        raise CommandError(
            "--github and --junit report a verdict, so they need --fail-over."
        )
    pairs = _find_pairs(args.a, args.b, args.baseline)
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
        documents = [document(pair_diff) for pair_diff in diffs]
        for index, pair in enumerate(pairs):
            documents[index] = _add_fused_kernels(
                documents[index], loaded[pair.b].trace
            )
        is_single = len(documents) == 1  # else the document is a list
        emit_json(documents[0] if is_single else DiffsDocument(documents))
    elif args.markdown:
        emit("\n".join(format_markdown(pair_diff) for pair_diff in diffs))
    else:
        emit("\n".join(format_diff(pair_diff, width()) for pair_diff in diffs))
        _print_fused_kernels([loaded[pair.b].trace for pair in pairs])
    if args.fail_over is None:
        return max(one.code for one in loaded.values())
    traces = {name: one.trace for name, one in loaded.items()}
    return _report_verdict(args, traces, pairs, diffs)


MAX_FUSED = 10
"""Kernels of each B whose lines are named in the text."""


def _find_fused_kernels(trace: Trace) -> tuple[FusedKernel, ...]:
    """Return the compiled kernels that compute several lines of Python, by the compile
    log of a trace. Empty without compiled code or log. Raises TraceError if a log that
    the user named cannot be read."""
    from fusetui.trace.model.op_names import is_compiler

    if not any(map(is_compiler, trace.names)):
        return ()
    from fusetui.analysis.compiled.finding import find_compile_log
    from fusetui.analysis.compiled.fused import list_fused_kernels

    return list_fused_kernels(trace, find_compile_log(trace))


def _print_fused_kernels(compiled: Sequence[Trace]) -> None:
    """Print, for each trace that has fused kernels, which lines of Python each of them
    computes."""
    for trace in compiled:
        kernels = _find_fused_kernels(trace)
        if kernels:
            from fusetui.report.compiled import format_fused_kernels

            emit(f"{format_fused_kernels(kernels, width(), MAX_FUSED)}\n")


def _add_fused_kernels(document: DiffDocument, trace: Trace) -> DiffDocument:
    """Return the document of a diff with the fused kernels of `trace`, its side B. It
    is unchanged if there are none."""
    kernels = _find_fused_kernels(trace)
    if not kernels:
        return document
    from fusetui.report import printed
    from fusetui.report.compiled import FusedDiffDocument

    return printed(document, FusedDiffDocument, fused=kernels)


def _find_pairs(a: str, b: str | None, baseline: str | None) -> list[Pair]:
    """Return the pairs of traces to compare. Two traces are one pair; two folders give
    their files with equal names.

    In a single run folder, the baseline (or else the first variant) is paired with
    every other variant. Raises CommandError if there is nothing to compare.
    """
    if b is None:
        return _pair_variants(a, baseline)
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


def _pair_variants(folder: str, baseline: str | None) -> list[Pair]:
    """Return the baseline of a run folder, paired with every other variant. `baseline`
    is the name of a variant; None is the first. Raises CommandError if the folder is no
    run, has one trace only, or no such variant."""
    run = find_only_folder(folder) if find_folders_below(folder) else folder
    if os.path.isdir(run) and not is_run_folder(run):
        raise CommandError(
            f"{run} is not a run folder: add a second trace or folder to compare with."
        )
    paths = traces(run) if is_run_folder(run) else []
    if len(paths) < 2:
        raise CommandError(f"Nothing to compare {folder} with: add a second trace.")
    path_of_variant = {_variant_name(path): path for path in paths}
    if baseline is None:
        first = paths[0]
    elif baseline in path_of_variant:
        first = path_of_variant[baseline]
    else:
        variant_names = ", ".join(path_of_variant)
        raise CommandError(f"{folder} has no variant {baseline}, only {variant_names}.")
    return [Pair(first, path) for path in paths if path != first]


def _variant_name(path: str) -> str:
    """The name of the variant whose trace this is: `eager` of `run/eager.json.gz`."""
    return Path(path).name.removesuffix(".gz").removesuffix(".json")


def _report_verdict(
    args: Namespace,
    traces: Mapping[str, Trace],
    pairs: Sequence[Pair],
    diffs: Sequence[Diff],
) -> int:
    """Report for each pair whether B is slower than --fail-over allows, and each trace
    that is incomplete. Pairs with an incomplete trace get no verdict. Returns the exit
    code."""
    from fusetui.commands.verdicts import reported_path, told, unread

    not_whole = [name for name, trace in traces.items() if not trace.report.whole]
    cases = []
    for pair, pair_diff in zip(pairs, diffs, strict=True):
        if pair.a not in not_whole and pair.b not in not_whole:
            file = reported_path(traces[pair.b])
            cases.append(_make_case(pair_diff, args.fail_over, file))
    if not args.github:
        say(*(case.said for case in cases if case.outcome.is_told))
    cases += [unread(name) for name in not_whole]
    return told(args, cases, map(format_markdown, diffs))


def _make_case(found: Diff, percent: float, file: str) -> Case:
    """Return the verdict on one pair: it fails if B is slower than A by more than
    `percent`. Noise must not fail a pair, so the low end of the interval of the ratio
    counts."""
    from fusetui.commands.verdicts import Case, Outcome

    pair = f"{found.a} -> {found.b}"
    step = found.step
    if found.verdict.answer is Answer.CANNOT_TELL:
        outcome = Outcome.CANNOT_TELL
        sentence = f"it is unclear whether B is slower: {found.verdict.reason or ''}."
    elif (step.low or 0) <= 1 + percent / 100:
        outcome = Outcome.PASSED
        sentence = f"{judgment(found)}."
    else:
        outcome = Outcome.FAILED
        ratio_text = f"{step.ratio:.3f} times as long as A's"
        sentence = (
            f"B's {step.length_b.step} is more than {percent:g} % slower: {ratio_text}."
        )
    return Case(name=pair, outcome=outcome, said=f"{pair}: {sentence}", file=file)
