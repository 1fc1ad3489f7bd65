"""docs/json.md, with the pages that it refers to, has every key of every document."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import fusetui  # noqa: F401  (a fixture)
from tests.corpus.fixtures import any_of
from tests.places import ROOT
from tests.snapshots import failed, traced, trained

Run = Callable[..., Any]
DOCS = ROOT / "docs"
EAGER, COMPILED = "lesson:mlp-eager", "lesson:mlp-compiled"
OTHERS = {
    "why": "why.md",
    "gaps": "why.md",
    "serving": "why.md",
    "decode": "kernel-names.md",
}
COMMANDS = (
    ("summary", EAGER),
    *(
        ("kernels", EAGER, "--by", by)
        for by in ("name", "op", "shape", "module", "stream", "step")
    ),
    ("ops", EAGER, "--by", "shape"),
    ("modules", EAGER),
    ("lines", EAGER),
    ("launches", EAGER),
    ("why", EAGER),
    ("why", EAGER, COMPILED),
    ("gaps", EAGER),
    ("diff", EAGER, COMPILED),
    ("check", EAGER, "--expect", "kernels=5"),
    ("decode", "triton_poi_fused_gelu_mul_0"),
    ("serving", EAGER),
    ("whatif", EAGER, "family:gemm x0.5"),
    ("whatif", EAGER, "--sweep", "family:gemm x0.1..1"),
    ("path", EAGER),
    ("samples",),
    ("ranks", EAGER),
)
any_trace = any_of("training", "serving", "job/rank2", "waits")
OF_NAMES = {"decoded", "names"}  # see kernel-names.md
ANYTHING = {"peaks", "given", "thresholds", "idle"}  # keys below are names of something


def keys(document: object) -> Iterator[str]:
    if isinstance(document, list):
        for inner in document:
            yield from keys(inner)
    elif isinstance(document, dict):
        for key, inner in document.items():
            yield key
            if key not in OF_NAMES | ANYTHING:
                yield from keys(inner)


def documented(command: str) -> set[str]:
    pages = ["json.md", *([OTHERS[command]] if command in OTHERS else [])]
    text = "".join((DOCS / page).read_text(encoding="utf-8") for page in pages)
    return set(re.findall(r"`(\w+)`", text))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_key_is_documented(fusetui: Run, command: tuple[str, ...]) -> None:  # noqa: F811
    found = json.loads(fusetui(*command, "--json").out)
    assert set(keys(found)) - documented(command[0]) == set()


def test_every_key_of_a_snapshot_is_documented(fusetui: Run, tmp_path: Path) -> None:  # noqa: F811
    for path in (trained(tmp_path), failed(tmp_path), traced(tmp_path)):
        found = json.loads(fusetui("memory", path, "--json").out)
        assert set(keys(found)) - documented("memory") == set()


def test_keys_of_traces_are_documented(fusetui: Run, any_trace: Path) -> None:  # noqa: F811
    for command in ("summary", "kernels", "ops", "modules", "launches", "why"):
        found = json.loads(fusetui(command, any_trace, "--json").out)
        assert set(keys(found)) - documented(command) == set(), command


def test_every_documented_key_is_in_the_code() -> None:
    rows = re.findall(
        r"^\| (`.*?) \|", (DOCS / "json.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    names = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    folders = ("src/fusetui", "capture")
    files = (path for name in folders for path in (ROOT / name).rglob("*.py"))
    assert (
        names
        - {word for path in files for word in re.findall(r"\w+", path.read_text())}
        == set()
    )
