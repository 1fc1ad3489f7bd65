"""docs/why.md explains every figure of `why --json`."""

from __future__ import annotations

import msgspec
import pytest
from tests.places import ROOT

from fusetui.analysis.why.host import Host
from fusetui.analysis.why.idle_reasons import IDLE
from fusetui.analysis.why.model import Ceiling, DeviceAccount, Finding, Gap, ThreadAccount

PAGE = (ROOT / "docs" / "why.md").read_text(encoding="utf-8")
FIGURES = [
    field.name
    for record in (DeviceAccount, ThreadAccount, Ceiling)
    for field in msgspec.structs.fields(record)
    if field.name.endswith("_ns")
]
ABOUT_A_GAP = [field.name for field in msgspec.structs.fields(Gap) if field.type == str | None]

OF_A_FINDING = [name.rstrip("_") for name in Finding.__struct_fields__]


@pytest.mark.parametrize("name", [*IDLE, *FIGURES, *ABOUT_A_GAP, *OF_A_FINDING])
def test_each_figure_is_explained(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_reasons_of_the_host_are_in_its_order() -> None:
    assert [*IDLE][2 : 2 + len(Host)] == [f"host_{kind.name.lower()}" for kind in Host]
