"""Scrubbed traces have the same figures, and nothing private that was in them.

benchmarks/scrubbing.py does the same with large real ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import asdict
from tests.corpus.files import GENERATED, RANKS
from tests.corpus.fixtures import any_of

from fusetui.analysis.questions.summary import summary
from fusetui.analysis.questions.totals import sum_kernels_by_name, sum_ops_by_name
from fusetui.trace import open_trace
from fusetui.trace.read.source import open_source
from fusetui.trace.scrub.detect import find_named_secrets, find_tokens, secrets_of
from fusetui.trace.scrub.document import scrub_file
from fusetui.trace.scrub.events import STRING

NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*"|(-?\d[\d.eE+-]*)')
ABSOLUTE = re.compile(r"(?<![\w./])/(?:[\w.@~-]+/)+")
NAMES = ("username", "host_name", "node", "started_by", "HOSTNAME")
CHANGING = ("file", "bytes")


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
        (t.name, t.count, t.total_ns, t.min_ns, t.max_ns)
        for t in sum_kernels_by_name(trace)
    ]
    ops = [
        (t.name, t.count, t.total_ns, t.self_ns, t.gpu_ns, t.kernels)
        for t in sum_ops_by_name(trace)
    ]
    return whole, kernels, ops


any_trace = any_of(*GENERATED, *RANKS)


def test_scrubbed_trace_has_the_same_figures_and_no_secret(
    any_trace: Path, tmp_path: Path
) -> None:
    path, out = str(any_trace), str(tmp_path / "out.json")
    scrub_file(path, out)
    assert figures(out) == figures(path)
    assert secrets_of(open_trace(out)) == ()
    before, after = open_source(path).document[:], Path(out).read_bytes()
    events = [text[text.index(b'"traceEvents"') :] for text in (before, after)]
    assert NUMBER.findall(events[0]) == NUMBER.findall(events[1])
    left = "\n".join(text for pair in texts(json.loads(after)) for text in pair)
    assert [text for text in private(json.loads(before)) if text in left] == []


def secrets_in(document: bytes) -> set[str]:
    """Its strings that are taken for secrets, each looked at once; not masked
    tokens."""
    secrets = set()
    for raw in set(STRING.findall(document)):
        text = json.loads(b'"%b"' % raw, strict=False)
        is_masked_token = text.startswith("hf_0000")
        if not is_masked_token and [*find_tokens(text), *find_named_secrets(text)]:
            secrets.add(text)
    return secrets


def test_no_string_of_a_trace_is_taken_for_a_secret(any_trace: Path) -> None:
    """Names of kernels, ops and frames above all."""
    assert secrets_in(bytes(open_source(str(any_trace)).document[:])) == set()
