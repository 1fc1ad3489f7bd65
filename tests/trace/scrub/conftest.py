"""Scrubs small documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusetui.trace.read.source import open_source
from fusetui.trace.scrub.document import ScrubbedDocument
from fusetui.trace.scrub.texts import Known

Scrub = Callable[..., str]


@pytest.fixture
def scrub(tmp_path: Path) -> Scrub:
    """A document (text, or what is written as JSON) -> its scrubbed text."""

    def scrubbed(document: Any, known: Known | None = None) -> str:
        path = tmp_path / "in.json"
        text = document if isinstance(document, str) else json.dumps(document)
        path.write_bytes(text.encode(errors="surrogateescape"))
        found = ScrubbedDocument(open_source(str(path)), known)
        found.learn()
        return b"".join(found.text()).decode()

    return scrubbed


@pytest.fixture
def kept(scrub: Scrub) -> Callable[..., Any]:
    """The scrubbed document, parsed."""
    return lambda document: json.loads(scrub(document))


@pytest.fixture
def event_of(kept: Callable[..., Any]) -> Callable[..., Any]:
    """One event -> the same, scrubbed; keywords become keys of the document."""

    def one(event: dict[str, Any], **keys: Any) -> Any:
        return kept({**keys, "traceEvents": [event]})["traceEvents"][0]

    return one
