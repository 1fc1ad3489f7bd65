"""`fusetui ranks` beside jobs of which is known what was planted: is the right rank
named?

    python -P benchmarks/rank_jobs.py [--seeds 3] [--family WORDS] [--put]
    python -P benchmarks/rank_jobs.py --list
    python -P benchmarks/rank_jobs.py --make FOLDER --case NAME [--seed N]

Each case is a job that was played with one true clock (job_maker.py, job_programs.py)
and written as torch.profiler does (job_traces.py). The answer is told right, cannot
tell (it names nobody and says why), or wrong. --make writes one job and prints what is
planted into it, as JSON; --put places the table into docs/ranks.md.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec
from benchmarks.job_cases import CASES, Case, Truth, case_of, make
from benchmarks.job_traces import FIRST_STEP
from benchmarks.pages import put

from fusetui.analysis.ranks.answer import explained
from fusetui.analysis.ranks.executors import summarize
from fusetui.report.ranks import ranks_document, ranks_text

PAGE = Path(__file__).parents[1] / "docs" / "ranks.md"
RIGHT, CANNOT, WRONG = "right", "inconclusive", "wrong"
NEAR = 0.05  # of the planted delay
OF_STEP, OF_WORST = 0.02, 0.1
"""The floors of docs/ranks.md (Stragglers): of a step, and of what a rank does in its
worst step. Who holds up the others by less is not named, nor is such a step."""
ABOVE, BELOW = 1.5, 0.5
"""So many times a floor is surely above it, and surely below it: between these, noise
decides whether a rank or a step is named, and either is right."""
# of a step: how well waits must be known beside that; points
WAIT, BUBBLE = 0.005, 0.02
NAMED = re.compile(r"^Ranks? (\d+)\b", re.MULTILINE)
WAITED = re.compile(r"others wait ([\d.,]+) (ns|us|ms|s)\b")
REASONS = re.compile(
    r"cannot be told|cannot tell|do not tell|does not tell|is not told|outside the given ranks|"
    r"no rank stands out|are refused"
)
LONGER = re.compile(r"([\d.,]+) (ns|us|ms|s) a (late )?step (?:longer|more)\b")
WOULD = re.compile(r"would take ([\d.,]+) (ns|us|ms|s)\b")
CAUSES = {
    "gemm": r"kernels|aten::mm|compute",
    "tokens": r"kernels|aten::mm|compute",
    "loading": r"DataLoader|annotat",
    # Nothing of a pause is recorded: the thread that launches is in the annotation of
    # the step and in nothing else, or, that of autograd, in nothing at all. More cannot
    # be told; that it spends the time in some annotation or op would be wrong (see
    # _reasons).
    "gc": r"nothing was recorded on the launching thread|idle in annotated code",
    "begin": r"before the window",
    "sync": r"check_overflow|annotat|ynchroniz|nothing was recorded on the launching thread",
}
UNIT_NS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


class Judged(NamedTuple):
    verdict: str
    why: str


def asked(folder: Path) -> tuple[dict[str, Any], str]:
    """Return what `fusetui ranks FOLDER` says about a job: its JSON, and its text."""
    files = sorted(
        map(str, folder.glob("rank*.json")), key=lambda name: (len(name), name)
    )
    with ThreadPoolExecutor(1) as one:
        answer = explained(summarize(files, one, cached=False)).answer
    return msgspec.to_builtins(ranks_document(answer)), ranks_text(
        answer, 10_000, len(files)
    )


def judged(truth: Truth, found: dict[str, Any], text: str) -> Judged:
    """Return the verdict on an answer about a job, and why it is not right. It is wrong
    if it contradicts itself, names an innocent rank, or gives false figures."""
    faults = [
        *_contradictions(found, text),
        *_too_long(found),
        *_other_waits(truth, found),
    ]
    if faults:
        return Judged(WRONG, "; ".join(faults))

    named = [one["rank"] for one in found["stragglers"]]
    innocent = [rank for rank in named if rank not in truth.culprits]

    if truth.expect in {"nobody", "flips", "outside"}:
        if named:
            return Judged(WRONG, f"names {named}")
        return _silent(truth, found, text)

    if innocent:
        return Judged(WRONG, f"names {named}, not {truth.culprits}")

    if not named:  # the reason has to be in the verdict: a remark about clocks is none
        reason = REASONS.search(_verdict(found))
        return (
            Judged(CANNOT, reason[0])
            if reason
            else Judged(WRONG, "names nobody, and no reason")
        )

    if truth.expect == "ranks":
        return _several_charged(truth, found)

    return _charged(truth, found)


def _verdict(found: dict[str, Any]) -> str:
    """Return what the answer says of who is late, and why nobody is named."""
    refused = found.get("clocks", {}).get("refused", "")
    told = f"Who waits for whom cannot be told: {refused}" if refused else ""
    return " ".join([*found.get("verdict", ()), told])


def _silent(truth: Truth, found: dict[str, Any], text: str) -> Judged:
    """Return the verdict on an answer that rightly names nobody. If much was waited, it
    must say how much; if the culprit is not given, it must say that ranks are missing.
    """
    if truth.expect == "outside" and "ot given" not in text:
        return Judged(WRONG, "does not say that ranks are missing")

    if truth.expect == "flips":
        told = _flips(text)
        if told is None:
            return Judged(WRONG, "the total of the flips is not told")
        if not _near(told, truth):
            return Judged(
                WRONG, f"a total of {told / 1e3:.0f} us, not {truth.planted / 1e3:.0f}"
            )

    return Judged(RIGHT, "")


def _flips(text: str) -> float | None:
    """Return the waiting in ns per step that the text gives where no rank stands out;
    None if it gives none."""
    line = next(
        (line for line in text.splitlines() if "no rank stands out" in line.lower()), ""
    )
    time = re.search(r"([\d.,]+) (ns|us|ms|s)\b", line)
    return _ns(time) if time else None


def _charged(truth: Truth, found: dict[str, Any]) -> Judged:
    """Return the verdict on an answer that names the culprit: the waiting that it
    charges must be what was planted."""
    if truth.expect == "stage":
        return Judged(RIGHT, "")

    first = found["ranks"][0]
    if first["rank"] != truth.culprits[0]:
        return Judged(WRONG, f"rank {first['rank']} stands first in the table")

    told = first["caused_ns"] / truth.steps
    if case_of(truth.case).shape.pp > 1:  # how much of it shows depends on the schedule
        most = (1 + NEAR) * max(truth.planted, truth.step - truth.ordinary)
        return (
            Judged(RIGHT, "")
            if told <= most
            else Judged(WRONG, f"{told / 1e3:.0f} us charged")
        )

    if not _near(told, truth):
        return Judged(
            WRONG, f"others wait {told / 1e3:.0f} us, not {truth.planted / 1e3:.0f}"
        )

    more = list(_reasons(truth, found["stragglers"][0]))
    more += _other_steps(truth, found["stragglers"][0])
    return Judged(WRONG, "; ".join(more)) if more else Judged(RIGHT, "")


def _several_charged(truth: Truth, found: dict[str, Any]) -> Judged:
    """Return the verdict on an answer about two culprits: each must be named, and
    charged with its part of the waiting. A culprit that holds the others up by little
    need not be named."""
    stragglers = {one["rank"]: one for one in found["stragglers"]}
    rows = {row["rank"]: row for row in found["ranks"]}
    total = sum(one.charged for one in truth.several)

    hidden = max(0.0, total - truth.waited)  # by the noise of the others
    faults = []
    for one in truth.several:
        is_named = one.rank in stragglers
        if not is_named and one.charged > ABOVE * OF_STEP * truth.step:
            faults.append(f"does not name {one.rank}")

        if is_named and one.charged < BELOW * OF_STEP * truth.step:
            faults.append(f"names {one.rank}, for whom the others hardly wait")

        told = rows[one.rank]["caused_ns"] / truth.steps
        if abs(told - one.charged) > max(NEAR * total, truth.noise) + hidden:
            faults.append(
                f"others wait {told / 1e3:.0f} us for {one.rank}, not {one.charged / 1e3:.0f}"
            )

        own = truth._replace(
            culprits=[one.rank],
            cause=one.cause,
            planted=one.planted,
            ordinary=one.ordinary,
            late_steps=one.late_steps,
            longer=one.longer,
            held_up=one.held_up,
        )
        if not is_named:
            continue

        faults += _reasons(own, stragglers[one.rank])
        faults += _other_steps(own, stragglers[one.rank])

    would = WOULD.search(" ".join(found.get("verdict", ())))
    if would and abs(_ns(would) - truth.ordinary) > 2 * NEAR * truth.planted:
        faults.append(f"with both fixed {would[0]}, not {truth.ordinary / 1e3:.0f} us")

    return Judged(WRONG, "; ".join(faults)) if faults else Judged(RIGHT, "")


def _reasons(truth: Truth, straggler: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the reason that the answer gives for a late rank:
    another cause, or figures larger than what was planted."""
    text = straggler["text"]
    if re.search(r"Meanwhile|It spends", text) and not re.search(
        CAUSES[truth.cause], text
    ):
        yield f"not {truth.cause}: {text}"

    if truth.cause == "gc" and "It spends" in text:
        yield f"a pause is not recorded: {text}"

    named = _steps_named(truth, straggler)
    for told in LONGER.finditer(text):
        each = truth.planted
        if told[3] and truth.late_steps:
            each *= truth.steps / len(truth.late_steps)
        elif told[3]:  # a pause is long in the steps in which little work is queued
            each = max(
                each, sum(truth.longer[step] for step in named) / max(1, len(named))
            )
        if _ns(told) > (1 + 2 * NEAR) * each:
            yield f"{told[0]}, {truth.planted / 1e3:.0f} us were planted"

    would = WOULD.search(text)
    if would and abs(_ns(would) - truth.ordinary) > 2 * NEAR * truth.planted:
        yield f"{would[0]}, not {truth.ordinary / 1e3:.0f} us"


def _other_steps(truth: Truth, straggler: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the late steps that the answer names. They must be the
    steps with the fault; for a pause they are those in which it holds up the others."""
    if truth.cause == "gc":
        named_places = _steps_named(truth, straggler)
        floor = max(OF_STEP * truth.step, OF_WORST * max(truth.held_up, default=0.0))
        for step, held_up in enumerate(truth.held_up):
            if (held_up > ABOVE * floor and step not in named_places) or (
                held_up < BELOW * floor and step in named_places
            ):
                yield f"others wait {held_up / 1e3:.0f} us in step {step}; named: {named_places}"

    if not truth.late_steps:
        return

    named = [int(step["name"].partition("#")[2]) for step in straggler["late_steps"]]
    if named != list(truth.late_steps):
        yield f"late in steps {named}, not {truth.late_steps}"
    elif f"late in only {len(named)} of {truth.steps} steps" not in straggler["text"]:
        yield f"does not say that it is late in some steps only: {straggler['text']}"


def _steps_named(truth: Truth, straggler: dict[str, Any]) -> list[int]:
    """Return the late steps that the answer names, counted from 0."""
    numbers = [
        int(step["name"].partition("#")[2]) for step in straggler.get("late_steps", ())
    ]
    return [number - FIRST_STEP for number in numbers]


def _near(told: float, truth: Truth) -> bool:
    """Return whether a time that the answer gives is near the truth: between what the
    others waited longer and what was planted.

    The tolerance is NEAR, or what the others wait without the fault, if that is more.
    Those waits are for whoever is last, which is the culprit with the fault.
    """
    least, most = sorted((truth.waited, truth.planted))
    return (1 - NEAR) * least <= told <= most + max(NEAR * most, truth.noise)


def _ns(time: re.Match[str]) -> float:
    """Return the time that a pattern has found in a text, in ns."""
    return float(time[1].replace(",", "")) * UNIT_NS[time[2]]


def _contradictions(found: dict[str, Any], text: str) -> Iterator[str]:
    """Yield where the text and the JSON of an answer do not say the same."""
    named = [int(rank) for rank in NAMED.findall(text)]
    stragglers = [one["rank"] for one in found["stragglers"]]
    if named[: len(stragglers)] != stragglers:
        yield f"the text names {named}, the JSON {stragglers}"

    rows = {row["rank"]: row for row in found["ranks"]}
    for one in found["stragglers"]:
        row = rows[one["rank"]]
        told = WAITED.search(one["text"])
        each = row["caused_ns"] / max(1, row["steps"])
        if told and abs(_ns(told) - each) > 0.01 * each:
            yield f"{told[0]} in the text, {each / 1e3:.1f} us in the JSON"


def _too_long(found: dict[str, Any]) -> Iterator[str]:
    """Yield the waits of an answer that are longer than the step in which they are."""
    for row in found["ranks"]:
        for key in ("caused_ns", "waited_ns"):
            each = row[key] / max(1, row["steps"])
            if row["step_ns"] and each > row["step_ns"]:
                yield f"rank {row['rank']}: {key} {each / 1e3:.0f} us of {row['step_ns'] / 1e3:.0f}"


def _other_waits(truth: Truth, found: dict[str, Any]) -> Iterator[str]:
    """Yield the waits of ranks, and the bubble of a pipeline, that differ from the true
    ones. Waits are not checked if some ranks or collectives are missing."""
    share = found.get("bubble")
    if share is not None and abs(share - truth.bubble) > BUBBLE:
        yield f"a bubble of {share:.0%}, not {truth.bubble:.0%}"

    if len(truth.given) < len(truth.waits) or case_of(truth.case).lost:
        return

    for row in found["ranks"]:
        told = (row["waited_ns"] or 0) / truth.steps
        least, most = truth.waits[row["rank"]]
        error = max(least - told, told - most)
        if told and error > NEAR * most + WAIT * truth.step:
            yield f"rank {row['rank']} waits {told / 1e3:.0f} us, not {least / 1e3:.0f}"


def trial(case: Case, seed: int) -> tuple[Truth, Judged]:
    """Make a job, ask about it, and return what was planted and the verdict. An
    exception is a wrong answer."""
    with tempfile.TemporaryDirectory() as name:
        truth = make(case, seed, Path(name))
        try:
            found, text = asked(Path(name))
        except Exception as error:
            return truth, Judged(WRONG, f"{type(error).__name__}: {error}")
    return truth, judged(truth, found, text)


def table(results: Sequence[tuple[Truth, Judged]]) -> str:
    """Return the Markdown table of how many answers are right, with a row for each
    family of cases and one for all."""
    families = list(dict.fromkeys(truth.family for truth, _ in results))
    rows = [["job", "jobs", RIGHT, CANNOT, WRONG], ["---", "---", "---", "---", "---"]]
    for family in [*families, ""]:
        counts = Counter(
            one.verdict for truth, one in results if family in ("", truth.family)
        )
        figures = [str(counts[verdict]) for verdict in (RIGHT, CANNOT, WRONG)]
        rows.append([family or "all", str(counts.total()), *figures])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Make jobs of all cases, judge the answers, and print the table; with --put it is
    put into docs/ranks.md. --list prints the cases, and --make writes one job."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="jobs of each case")
    parser.add_argument("--family", default="", help="only cases with these words")
    parser.add_argument("--put", action="store_true", help="into the page")
    parser.add_argument("--list", action="store_true", help="the cases")
    parser.add_argument("--make", type=Path, metavar="FOLDER", help="write one job")
    parser.add_argument("--case", metavar="NAME")
    parser.add_argument("--seed", type=int, default=0)

    args = parser.parse_args()
    if args.list:
        print(
            "\n".join(f"{case.name:20} {case.family}, {case.expect}" for case in CASES)
        )
        return

    if args.make:
        print(
            json.dumps(
                make(case_of(args.case), args.seed, args.make)._asdict(), indent=1
            )
        )
        return

    results = []
    cases = [case for case in CASES if args.family in f"{case.family}, {case.name}"]
    for case in cases:
        for seed in range(args.seeds):
            truth, one = trial(case, seed)
            results.append((truth, one))
            if one.why:
                print(
                    f"{one.verdict}: {case.name} seed {seed} {truth.culprits}: {one.why}"
                )

    print(table(results))

    if args.put:
        put(PAGE, "planted jobs", table(results), __file__)


if __name__ == "__main__":
    main()
