"""`diff`: what one trace, or run folder, does differently from another."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Answer, Diff
from fusetui.commands.errors import CommandError, say
from fusetui.commands.loading import LoadedTrace, load, one_form
from fusetui.commands.sources import folders_below, is_run, only_below, traces
from fusetui.report.diff import DiffsDocument, document, judgment, to_markdown, to_text
from fusetui.report.output import emit, emit_json, width

if TYPE_CHECKING:
    from fusetui.commands.verdicts import Case
    from fusetui.trace import Trace

Pair = tuple[str, str]


def run_diff(args: Namespace) -> int:
    """Raises CommandError if it is unclear what to compare, and NoStepsError."""
    one_form(args, "markdown")
    if args.fail_over is None and (args.github or args.junit is not None):
        raise CommandError(
            "--github and --junit tell a verdict: say what it is, with --fail-over."
        )
    loaded: dict[str, LoadedTrace] = {}
    found: list[Diff] = []
    pairs = _pairs(args.a, args.b, args.baseline)
    for pair in pairs:
        for name in pair:
            loaded[name] = loaded.get(name) or load(name, ())
        a, b = (loaded[name].trace for name in pair)
        found.append(diff(a, b, step_by=args.step_by))
    if args.json:  # one document for a single pair, a list for several
        documents = [document(one) for one in found]
        emit_json(documents[0] if len(documents) == 1 else DiffsDocument(documents))
    else:
        texts = (
            to_markdown(one) if args.markdown else to_text(one, width())
            for one in found
        )
        emit("\n".join(texts))
    if args.fail_over is None:
        return max(one.code for one in loaded.values())
    return _verdict(
        args, {name: one.trace for name, one in loaded.items()}, pairs, found
    )


def _pairs(a: str, b: str | None, baseline: str | None) -> list[Pair]:
    """The pairs to compare: two traces; the files of equal names in two folders; or in
    one run folder, the baseline (by default the first variant) with every other
    variant."""
    if b is None:
        return _variants(a, baseline)
    if baseline is not None:
        raise CommandError(
            "--baseline is for a single run folder: leave out the second trace."
        )
    if not (os.path.isdir(a) and os.path.isdir(b)):
        return [(a, b)]
    others = {os.path.basename(path): path for path in traces(b)}
    found = [(path, others.get(os.path.basename(path))) for path in traces(a)]
    pairs = [(one, other) for one, other in found if other is not None]
    if not pairs:
        raise CommandError(f"{a} and {b} have no file names in common.")
    return pairs


def _variants(folder: str, baseline: str | None) -> list[Pair]:
    run = only_below(folder) if folders_below(folder) else folder
    found = traces(run) if is_run(run) else []
    if os.path.isdir(run) and not is_run(run):
        raise CommandError(
            f"{run} is no run folder: give a second trace or folder to compare."
        )
    if len(found) < 2:
        raise CommandError(f"Give a second trace to compare {folder} with.")
    named = {
        Path(path).name.removesuffix(".gz").removesuffix(".json"): path
        for path in found
    }
    first = found[0] if baseline is None else named.get(baseline)
    if first is None:
        raise CommandError(
            f"{folder} has no variant {baseline}, only {', '.join(named)}."
        )
    return [(first, path) for path in found if path != first]


def _verdict(
    args: Namespace,
    traces: Mapping[str, Trace],
    pairs: Sequence[Pair],
    found: Sequence[Diff],
) -> int:
    """What --fail-over says of each pair, and of each trace that is not whole."""
    from fusetui.commands.verdicts import file_of, told, unread

    doubtful = [name for name, trace in traces.items() if not trace.report.whole]
    cases = [
        _judged(one, args.fail_over, file_of(traces[pair[1]]))
        for pair, one in zip(pairs, found, strict=True)
        if not set(pair).intersection(doubtful)
    ]
    if not args.github:
        say(*(one.said for one in cases if one.outcome.value[0]))
    return told(args, [*cases, *map(unread, doubtful)], map(to_markdown, found))


def _judged(found: Diff, percent: float, file: str) -> Case:
    from fusetui.commands.verdicts import Case, Outcome

    verdict, step = found.verdict, found.step
    pair = f"{found.a} -> {found.b}"
    if verdict.answer is Answer.CANNOT_TELL:
        said = f"{pair}: cannot tell whether B is slower: {verdict.reason or ''}."
        return Case(pair, Outcome.CANNOT_TELL, said, file)
    if (step.low or 0) <= 1 + percent / 100:
        return Case(pair, Outcome.PASSED, f"{pair}: {judgment(found)}.", file)
    by = f"{step.ratio:.3f} times as long as A's"
    said = f"{pair}: B's {step.length_b.step} is more than {percent:g} % slower: {by}."
    return Case(pair, Outcome.FAILED, said, file)
