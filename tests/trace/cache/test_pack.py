"""An entry holds every field of a Trace."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace import Trace
from fusetui.trace.cache.entry import columns_of, rest_of
from fusetui.trace.model.events import Events

Times = NDArray[np.int64]
Spelled = Annotated[Times, "ns"]


class Record(msgspec.Struct):
    """Columns in any spelling of their type, and what is none."""

    names: tuple[str, ...]
    plain: NDArray[np.int32]
    quoted: "NDArray[np.int32]"  # noqa: UP037
    alias: Times
    full: np.ndarray[Any, np.dtype[np.uint8]]
    bare: np.ndarray
    noted: Spelled
    elements: Events


def test_a_column_is_known_by_its_type_in_any_spelling() -> None:
    assert columns_of(Record) == ("plain", "quoted", "alias", "full", "bare", "noted")


def test_fields_of_a_record_that_are_no_columns_are_in_the_header() -> None:
    assert rest_of(Record).__struct_fields__ == ("names", "elements")


def test_every_field_of_a_trace_is_in_one_place() -> None:
    rest = rest_of(Trace).__struct_fields__
    assert sorted([*columns_of(Trace), *rest]) == sorted(Trace.__struct_fields__)
