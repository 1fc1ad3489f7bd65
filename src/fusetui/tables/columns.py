"""The columns of every table, as columns.txt has them. A table has all of them for every trace.

Names are those of `--json`, without dots; one differs where SQL reserves it or another column has
it. Ids are texts, because a trace may name a process or a device by any text.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from fusetui.analysis.why.model import IDLE
from fusetui.tables.table import DTYPES, Kind, Spec

Specs = tuple[Spec, ...]
FILE = Spec("file", "text", "the trace, as it was named; where several were given", False, True)
BY: Final = {
    "shape": ("name", "op", "inputs"),
    **{by: (by,) for by in ("name", "op", "module", "family", "stream", "step")},
}
"""What identifies a group of kernels, by what they are grouped by."""


def columns_of(table: str, by: str = "name") -> Specs:
    """The columns of a table; `by`: what kernels or ops are grouped by."""
    parts: tuple[str, ...] = (table,)
    if table == "kernels":
        parts = (*BY[by], "spread", "work", *(["decoded"] if "name" in BY[by] else []))
    elif table == "ops":
        parts = ("name", *(["inputs"] if by == "shape" else []), "spread", "of_ops")
    found = tuple(spec for part in parts for spec in _sections()[part])
    whole = {"gaps": "dur_ns", "ranks": "idle_ns"}.get(table)
    return (
        *found,
        *(
            Spec(f"idle_{name}_ns", "int", f"of {whole}: {reason.sentence}", table == "ranks")
            for name, reason in IDLE.items()
            if whole
        ),
    )


@cache
def _sections() -> dict[str, Specs]:
    """The parts of columns.txt by name."""
    text = Path(__file__).with_name("columns.txt").read_text(encoding="utf-8")
    sections = (section.split("]\n", 1) for section in text.split("\n[")[1:])
    return {name: tuple(_specs(lines)) for name, lines in sections}


def _specs(lines: str) -> Iterator[Spec]:
    kinds: dict[str, Kind] = {kind: kind for kind in (*DTYPES, "text")}
    for line in lines.strip().splitlines():
        name, kind, meaning = line.split(maxsplit=2)
        known = kinds[kind.rstrip("?")]
        yield Spec(name.rstrip("*"), known, meaning, kind.endswith("?"), name.endswith("*"))
