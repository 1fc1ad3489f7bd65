"""Records the sample traces again on this machine's device, and writes their README.md.

Run it as `python -P docs/make_samples.py`, with torch installed.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from fusetui.capture.command import measure
from fusetui.capture.errors import Progress
from fusetui.capture.options import DEFAULT_STEPS, Options, describe_shapes
from fusetui.capture.provenance import scrubbed_trace
from fusetui.capture.record import Measured, RunRecord

HERE = Path(__file__).resolve().parents[1] / "sample_traces"
WORKLOADS = ("mlp", "linear")
VARIANTS = ("eager", "compiled")
MAX_SAMPLE_BYTES = 300_000

INTRODUCTION = f"""\
# Sample traces

The samples are small captures of real runs. `fusetui samples` lists them, `fusetui open
sample:mlp-eager` opens one, and `fusetui open sample:mlp-eager sample:mlp-compiled` opens two side by
side. Host names, user names and paths were removed; all figures are unchanged.

In the source tree, `python -P docs/make_samples.py` records the samples again and writes this file. Each
sample has {DEFAULT_STEPS} profiled steps.

| sample | shows | shapes | device | made with | by |
|---|---|---|---|---|---|
"""


def main() -> None:
    """Captures, scrubs and writes all samples."""
    rows: list[str] = []
    for workload in WORKLOADS:
        rows += _make(workload)
    (HERE / "README.md").write_text(INTRODUCTION + "".join(rows), encoding="utf-8")


def _make(workload: str) -> Iterator[str]:
    """Captures a workload, writes its samples, and yields their rows of the table."""
    with TemporaryDirectory() as scratch:
        record, folder = measure(
            workload,
            Options(variants=VARIANTS),
            out=Path(scratch) / workload,
            progress=Progress(),
        )
        for variant in record.variants:
            if not isinstance(variant, Measured):
                raise SystemExit(f"{workload} {variant.name} failed: {variant.failed}")
            _write_sample(folder / variant.files[0], f"{workload}-{variant.name}")
            yield _row(record, variant)


def _write_sample(trace: Path, name: str) -> None:
    """Writes a trace without private data to `NAME.json.gz`, whose header has neither a
    time nor a name."""
    text = scrubbed_trace(trace, f"{name}.json")
    packed = gzip.compress(text.encode(), compresslevel=9, mtime=0)
    if len(packed) > MAX_SAMPLE_BYTES:
        raise SystemExit(
            f"{name} has {len(packed)} bytes, more than {MAX_SAMPLE_BYTES}."
        )
    (HERE / f"{name}.json.gz").write_bytes(packed)


def _row(record: RunRecord, variant: Measured) -> str:
    """The row of a sample in the table of README.md."""
    versions = []
    for package in ("torch", "triton", "python"):
        version = record.versions[package]
        if version:
            versions.append(f"{package} {version}")

    cells = (
        f"`{record.workload}-{variant.name}`",
        f"{record.summary}, {variant.name}",
        f"{record.dtype}, {describe_shapes(record.shapes)}",
        f"{record.device_kind.upper()}: {record.device}",
        ", ".join(versions),
        f"`fusetui capture {record.workload} --variant {variant.name}`",
    )
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    main()
