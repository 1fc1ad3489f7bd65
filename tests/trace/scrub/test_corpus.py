"""Real traces, where they are at hand: the same figures, and nothing private that was
in them.

benchmarks/scrubbing.py does the same with the large ones.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict
from tests.places import TRACES

from fusetui.analysis.questions.summary import summary
from fusetui.analysis.questions.totals import kernel_totals, op_totals
from fusetui.trace import open_trace
from fusetui.trace.read.source import open_source
from fusetui.trace.scrub.detect import named_in, secrets_of, tokens_in
from fusetui.trace.scrub.document import scrub_file
from fusetui.trace.scrub.events import STRING

SMALL = 1_200_000  # bytes of JSON
MAX_PACKED_BYTES = 1_000_000  # of a file all of whose texts are looked at
NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*"|(-?\d[\d.eE+-]*)')
ABSOLUTE = re.compile(r"(?<![\w./])/(?:[\w.@~-]+/)+")
NAMES = ("username", "host_name", "node", "started_by", "HOSTNAME")
CHANGING = ("file", "bytes")


def files() -> list[str]:
    if not (TRACES / "INDEX.tsv").is_file():
        return []
    with (TRACES / "INDEX.tsv").open() as index:
        rows = list(csv.DictReader(index, delimiter="\t"))
    return [row["file"] for row in rows if int(row["bytes_json"]) < SMALL]


FILES: list[Any] = list(files()) or [
    pytest.param(
        "none", marks=pytest.mark.skip(reason=f"there are no traces in {TRACES}")
    )
]


def texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """All strings in a value, each with its key."""
    if isinstance(value, dict):
        for inner, item in value.items():
            yield from texts(item, inner)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item, key)
    elif isinstance(value, str):
        yield key, value


def private(document: Any) -> set[str]:
    """Names, folders up to site-packages, and values of tokens, found in the simplest
    way."""
    found: set[str] = set()
    for key, text in texts(document):
        if (key in NAMES and text not in ("nobody", "")) or key.endswith("_TOKEN"):
            found.add(text)
        for folder in ABSOLUTE.findall(text.partition("://")[0]):
            found.add(folder.partition("site-packages/")[0])
    return found


def figures(path: str) -> Any:
    trace = open_trace(path)
    whole = {
        key: value
        for key, value in asdict(summary(trace)).items()
        if key not in CHANGING
    }
    kernels = [
        (t.name, t.count, t.total_ns, t.min_ns, t.max_ns) for t in kernel_totals(trace)
    ]
    ops = [
        (t.name, t.count, t.total_ns, t.self_ns, t.gpu_ns, t.kernels)
        for t in op_totals(trace)
    ]
    return whole, kernels, ops


@pytest.mark.parametrize("name", FILES)
def test_scrubbed_real_trace_has_the_same_figures_and_no_secret(
    name: str, tmp_path: Path
) -> None:
    path, out = str(TRACES / name), str(tmp_path / "out.json")
    scrub_file(path, out)
    assert figures(out) == figures(path)
    assert secrets_of(open_trace(out)) == ()
    before, after = open_source(path).document[:], Path(out).read_bytes()
    events = [text[text.index(b'"traceEvents"') :] for text in (before, after)]
    assert NUMBER.findall(events[0]) == NUMBER.findall(events[1])
    left = "\n".join(text for pair in texts(json.loads(after)) for text in pair)
    assert [text for text in private(json.loads(before)) if text in left] == []


@pytest.mark.parametrize(
    "name", sorted(p.name for p in TRACES.glob("*.json.gz")) or FILES
)
def test_only_hf_token_is_warned_of_in_the_corpus(name: str) -> None:
    """Some of these traces have the variable, with a token that was made unreadable."""
    assert set(secrets_of(open_trace(str(TRACES / name)))) <= {"HF_TOKEN"}


def test_no_string_of_a_real_trace_is_taken_for_a_secret() -> None:
    """Names of kernels, ops, frames and packages above all; each text once. Of larger
    files, the names of events are looked at above."""
    strings: set[bytes] = set()
    for path in TRACES.glob("**/*.json.gz"):
        if path.stat().st_size > MAX_PACKED_BYTES:
            continue
        strings.update(STRING.findall(bytes(open_source(str(path)).document[:])))
    secrets = set()
    for raw in strings:
        text = json.loads(b'"%b"' % raw, strict=False)
        is_masked_token = text.startswith("hf_0000")
        if not is_masked_token and [*tokens_in(text), *named_in(text)]:
            secrets.add(text)
    assert secrets == set()
