"""Each key that these commands print is explained in docs/why.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.places import ROOT

PAGE = (ROOT / "docs" / "why.md").read_text(encoding="utf-8")


def events(event: Callable[..., Any]) -> list[Any]:
    """A step in which a function calls a module that replays a graph, 50 us after a
    kernel."""
    cpu = {"cat": "python_function"}
    links = [{"args": {"correlation": n}} for n in (1, 2)]
    kernel = {"cat": "kernel", "pid": 0, "tid": 7}
    return [
        event("ProfilerStep#1", 0, 200, cat="user_annotation"),
        event("my_model.py(3): train", 1, 190, **cpu),
        event("nn.Module: Block_0", 2, 180, **cpu),
        event("aten::mm", 5, 20),
        event("cudaLaunchKernel", 10, 5, cat="cuda_runtime", **links[0]),
        event("k", 20, 30, **kernel, **links[0]),
        event("cudaGraphLaunch", 90, 5, cat="cuda_runtime", **links[1]),
        event("k", 100, 30, **kernel, **links[1]),
        event("k", 131, 30, **kernel, **links[1]),
    ]


@pytest.fixture
def file(tmp_path: Path, event: Callable[..., Any]) -> Path:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events(event)}))
    return path


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner)
    if isinstance(value, list):
        for inner in value:
            yield from keys(inner)


@pytest.mark.parametrize(
    "command", ["why", "gaps", "modules", "lines", "launches", "why A B"]
)
def test_each_json_key_of_each_command_is_explained(
    fusetui: Callable[..., Any], file: Path, command: str
) -> None:
    name, *others = command.split()
    found = set(keys(fusetui(name, *[file] * max(1, len(others)), "--json").json))
    assert len(found) > 5
    assert {key for key in found if f"`{key}`" not in PAGE} == set()
