"""The recipes of docs/sql.md say what the commands below them say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.corpus.files import corpus_path
from tests.docs.test_reference import DOCS

Run = Callable[..., Any]
Record = dict[str, Any]
RECIPE = re.compile(r"^### (.+)\n\n```sql\n([^`]+)```\n`fusetui (.+)`$", re.MULTILINE)
RECIPES = {
    title: (query, command.split())
    for title, query, command in RECIPE.findall(
        (DOCS / "sql.md").read_text(encoding="utf-8")
    )
}


def _calls(document: Record) -> list[Record]:
    """The calls of all threads by name."""
    counts, events = Counter[str](), Counter[str]()
    for call in (call for thread in document["threads"] for call in thread["calls"]):
        counts[call["name"]] += call["count"]
        events[call["name"]] += call["events"]
    return [
        {"name": name, "count": n, "events": events[name]} for name, n in counts.items()
    ]


def _idle(document: Record) -> list[Record]:
    return [
        {
            "device": str(one["device"]),
            "idle_ns": one["idle_ns"],
            **{
                f"{key}_ns": one["idle"].get(key, 0)
                for key in ("queued", "host_op", "launch_call")
            },
        }
        for one in document["devices"]
    ]


def _kernels(document: Record) -> list[Record]:
    """Those of the answer, with what the tables call otherwise."""
    rows: list[Record] = document["kernels"]
    ids = ("device", "stream")
    return [{k: str(v) if k in ids else v for k, v in row.items()} for row in rows]


def _named(document: Record) -> list[Record]:
    from fusetui.gpu.kernel_names import short_name

    found = sorted(_kernels(document), key=lambda row: (-row["total_ns"], row["name"]))
    return [{**row, "short": short_name(row["name"])} for row in found]


SAME: dict[str, Callable[[Record], list[Record]]] = {
    "The kernels with the most time": _named,
    "The GPU time of each op": _kernels,
    "The GPU time of each library": _kernels,
    "The work of each stream": _kernels,
    "The kernels of each step": lambda document: document["steps"],
    "Ops that take time on the CPU": lambda document: sorted(
        document["ops"], key=lambda row: (-row["self_ns"], row["name"])
    )[:10],
    "Modules and annotations at one level": lambda document: [
        row for row in document["modules"] if row["level"] == 0
    ],
    "Launch calls": _calls,
    "Why the GPU was idle": _idle,
    "What could be saved": lambda document: [
        row for row in document["findings"] if row["at_stake_ns"] is not None
    ],
}


def test_docs_have_ten_sql_recipes() -> None:
    assert [*RECIPES] == [*SAME]
    assert len(SAME) == 10


def plain(rows: list[Record], keys: list[str]) -> list[str]:
    """Rows in any order, with these keys."""
    return sorted(repr([row[key] for key in keys]) for row in rows)


def recipe_says_what_the_command_says(fusetui: Run, trace: str, title: str) -> None:
    query, command = RECIPES[title]
    found = fusetui("sql", trace, query, "--format", "json")
    answer = fusetui(command[0], trace, *command[1:], "--json")
    assert found.code == answer.code == 0
    assert found.json, "a recipe without an answer shows nothing"
    keys = [*found.json[0]]
    assert plain(found.json, keys) == plain(SAME[title](answer.json), keys)


@pytest.mark.parametrize("title", SAME)
@pytest.mark.parametrize("name", ["lesson-mlp-eager", "training"])
def test_a_recipe_says_what_the_command_says(
    fusetui: Run, name: str, title: str
) -> None:
    recipe_says_what_the_command_says(fusetui, str(corpus_path(name)), title)
