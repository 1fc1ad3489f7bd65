"""Code and documents are spelled as in American English."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.places import ROOT
from tests.sources import python_files

FOLDERS = (
    "tui",
    "capture",
    "kernels",
    "sample_traces",
    "src/fusetui",
    "tests",
    "fuzz",
    "docs",
)
BRITISH = re.compile(
    r"(?:col|behavi|neighb|fav|hon|lab)our|centre|\bgrey\b|judgement|analys(?:ed|ing)\b"
    r"|(?:util|recogn|summar|normal|synchron|optim|initial|organ|serial|vector|minim|maxim|visual)is"
    r"(?:e|ed|es|er|ing|ation)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("folder", FOLDERS)
def test_words_are_spelled_the_american_way(folder: str) -> None:
    documents = [
        *(ROOT / folder).rglob("*.md"),
        *(ROOT.glob("*.md") if folder == "docs" else ()),
    ]
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in (*python_files(folder), *documents)
    }
    assert not [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path, text in texts.items()
        if path != Path(__file__)
        for found in BRITISH.finditer(text)
    ]
