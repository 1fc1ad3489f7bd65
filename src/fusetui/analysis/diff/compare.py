"""Computes the diff of two traces."""

from __future__ import annotations

import os
import re

import msgspec

from fusetui.analysis.diff import dispatch, explain, outlier_steps, outlier_work
from fusetui.analysis.diff.account import accounting, side
from fusetui.analysis.diff.align import align
from fusetui.analysis.diff.items import Vocabulary, items, settled
from fusetui.analysis.diff.layers import around, surplus
from fusetui.analysis.diff.model import Diff
from fusetui.analysis.diff.notes import notes
from fusetui.analysis.diff.program_location import ProgramPlaces
from fusetui.analysis.diff.regions import by_region
from fusetui.analysis.diff.rules import group, moved
from fusetui.analysis.diff.step_change import other_devices, step_change, verdict
from fusetui.analysis.diff.story import by_place, by_work, story
from fusetui.analysis.diff.work import Work, in_common, work_of
from fusetui.text.printable import without_credentials
from fusetui.trace.model.columns import Trace
from fusetui.trace.read.reading import without_collector

_ENDING = re.compile(r"(\.pt)?(\.trace)?(\.json)?(\.gz|\.zst)?\Z")


def diff(a: Trace, b: Trace, *, step_by: str | None = None) -> Diff:
    """What changed from A to B, why, and whether it is more than noise.

    Times compare a step of B with a step of A; `step.ratio` is B / A, below 1 when B is faster.
    `step_by`: annotations that match this regular expression or plain text are the steps of both;
    raises NoStepsError if one has none.
    """
    labels = _labels(*(without_credentials(one.report.path) for one in (a, b)))
    with without_collector():  # nothing here is cyclic either
        return compared(work_of(a, labels[0], step_by), work_of(b, labels[1], step_by))


def compared(work_a: Work, work_b: Work) -> Diff:
    """The same for the work of some steps of two traces, or of one."""
    work_a, work_b = in_common(work_a, work_b)
    words = Vocabulary()
    of_a, notes_a = items(work_a, words)
    of_b, notes_b = items(work_b, words)
    of_a, of_b = settled(of_a, of_b)
    programs = ProgramPlaces(of_a), ProgramPlaces(of_b)
    aligned = align(of_a, of_b, (programs[0].at, programs[1].at))
    groups = [found for lanes in aligned for found in group(of_a, of_b, lanes)]
    groups = moved(of_a, of_b, groups)
    groups = by_region(*programs, groups) + surplus(of_a, of_b, aligned)
    step = step_change(of_a, of_b, groups)
    once = outlier_steps.once(of_a, of_b, groups)
    of_a, of_b = settled(of_a, of_b, [one.step for one in once if one.paired])
    rows = (
        *explain.rows(of_a, of_b, groups, programs),
        *outlier_work.rows(of_a, of_b),
        *(one.row for one in once),
        *dispatch.rows(of_a, of_b, around(of_a, of_b, groups)),
    )
    on_cpu = not (work_a.gpu or work_b.gpu)
    side_a, side_b = side(of_a, on_cpu), side(of_b, on_cpu)
    devices = other_devices(side_a, side_b)
    sums = accounting(step, side_a, side_b, rows)
    found = Diff(
        a=work_a.label,
        b=work_b.label,
        step=step,
        verdict=verdict(step, side_a, side_b),
        rows=rows,
        notes=tuple(
            dict.fromkeys((*notes(of_a, of_b, groups, devices, step, sums), *notes_a, *notes_b))
        ),
        accounting=sums,
        side_a=side_a,
        side_b=side_b,
    )
    return msgspec.structs.replace(
        found, story=story(found), by_work=by_work(found), by_place=by_place(found)
    )


def _labels(a: str, b: str) -> tuple[str, str]:
    """File names without extensions; with the folder where both files have the same name."""
    short = _short(os.path.basename(a)), _short(os.path.basename(b))
    if short[0] != short[1]:
        return short
    longer = [_short(os.path.join(*path.split(os.sep)[-2:])) for path in (a, b)]
    return (longer[0], longer[1]) if longer[0] != longer[1] else short


def _short(name: str) -> str:
    return _ENDING.sub("", name) or name
