"""How fast this checkout answers beside a release, in alternating pairs.

    python -P benchmarks/compare_release.py --release v0.1.0 [--out build/compared.md]
                                            [--pairs 10] [--megabytes 50]

The release is checked out into a temporary folder and installed there with its
dependencies. Both answer the same questions about a trace that is made of a lesson.
Each pair runs both, one after the other, in turns; the table has the medians of the
times and of the ratios. Without a release, it says that there is none.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.generate import generate

from fusetui.sample_traces import lessons

ROOT = Path(__file__).resolve().parents[1]
LESSON = "mlp-eager"
QUESTIONS = (
    ("summary", "--no-cache"),
    ("kernels", "--no-cache"),
    ("why", "--no-cache"),
    ("summary",),
)
MEGABYTE = 1_000_000


class Compared(NamedTuple):
    """A question, and how long both took: medians over the pairs."""

    question: str
    release_s: float
    checkout_s: float
    ratio: float  # of the checkout to the release, in one pair


def installed(release: str, folder: Path) -> Path:
    """Install a release with its dependencies in a folder, and return the path of its
    `fusetui`. Raises CalledProcessError."""
    tree = folder / "release"
    _run("git", "-C", str(ROOT), "worktree", "add", "--detach", str(tree), release)
    _run(sys.executable, "-m", "venv", str(tree / ".venv"))
    python = tree / ".venv" / "bin" / "python"
    _run(str(python), "-m", "pip", "install", "--quiet", str(tree))
    return python.with_name("fusetui")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def seconds(program: Path, question: Sequence[str], trace: Path) -> float:
    """Return the seconds that a program takes to answer a question about a trace.
    Raises CalledProcessError."""
    command, *options = question
    begun = time.perf_counter()
    _run(str(program), command, str(trace), "--json", *options)
    return time.perf_counter() - begun


def compared(programs: tuple[Path, Path], trace: Path, *, pairs: int) -> list[Compared]:
    """Return the times of the release and of this checkout for all questions. Both run
    in turns, so that both meet the same disturbances."""
    release, checkout = programs
    rows = []
    for question in QUESTIONS:
        for program in programs:  # what is read once is not measured
            seconds(program, question, trace)

        release_s: list[float] = []
        checkout_s: list[float] = []
        for pair in range(pairs):
            first_is_release = pair % 2 == 0
            order = (release, checkout) if first_is_release else (checkout, release)
            for program in order:
                times = release_s if program == release else checkout_s
                times.append(seconds(program, question, trace))

        ratios = [new / old for old, new in zip(release_s, checkout_s, strict=True)]
        rows.append(
            Compared(
                question=" ".join(question),
                release_s=median(release_s),
                checkout_s=median(checkout_s),
                ratio=median(ratios),
            )
        )

    return rows


def table(rows: Sequence[Compared], release: str) -> str:
    """Return a Markdown table of the questions, with the median times of both and their
    ratio."""
    lines = [f"| question | {release} | here | ratio |", "|---|---:|---:|---:|"]
    for row in rows:
        cells = (
            f"`{row.question}`",
            f"{row.release_s:.2f} s",
            f"{row.checkout_s:.2f} s",
            f"{row.ratio:.2f}",
        )
        lines.append(f"| {' | '.join(cells)} |")

    return "\n".join(lines) + "\n"


def main() -> int:
    """Install the release, compare it with this checkout, and write the table to --out.
    Returns 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--release", required=True, help='a tag; "" if there is none')
    parser.add_argument("--out", type=Path, default=Path("build/compared.md"))
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--megabytes", type=int, default=50)
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)

    if not options.release:
        options.out.write_text("There is no release to compare with.\n")
        return 0

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trace = folder / "trace.json"
        generate(lessons.path(LESSON), trace, options.megabytes * MEGABYTE)
        release = installed(options.release, folder)
        try:
            programs = (release, Path(sys.executable).with_name("fusetui"))
            rows = compared(programs, trace, pairs=options.pairs)
        finally:
            tree = str(folder / "release")
            _run("git", "-C", str(ROOT), "worktree", "remove", "--force", tree)

    text = table(rows, options.release)
    options.out.write_text(text)
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
