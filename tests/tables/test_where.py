"""Queries of tables, in the grammar of the search of the app."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.corpus.fixtures import any_of

from fusetui import Error
from fusetui.analysis.questions.query import parse
from fusetui.analysis.questions.query_text import WrongQueryError
from fusetui.analysis.questions.search import collect_name_texts, search
from fusetui.tables.public import table_of
from fusetui.tables.sources import trace_table
from fusetui.tables.table import ColumnSpec, NoColumnError
from fusetui.trace import open_trace

TABLE = table_of(
    "kernels",
    (
        ColumnSpec("name", "text", ""),
        ColumnSpec("total_ns", "int", ""),
        ColumnSpec("share", "float", "", optional=True),
        ColumnSpec("causal", "bool", "", optional=True),
        ColumnSpec("family", "text", "", optional=True),
        ColumnSpec("kernel_op", "text", "", optional=True),
        ColumnSpec("stream", "text", ""),
    ),
    [
        {"name": "a gemm", "total_ns": 90_000, "family": "cutlass", "kernel_op": "gemm"}
        | {"stream": "7"},
        {"name": "gemv", "total_ns": 50_000, "share": 0.5, "stream": "17"},
        {
            "name": "Flash",
            "total_ns": 10_000,
            "share": 0.9,
            "causal": True,
            "family": "flash",
        }
        | {"kernel_op": "attention", "stream": "7"},
    ],
)


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("", "012"),
        ("gem", "01"),
        ("-gem", "2"),
        ('"a gemm"', "0"),
        ("flash", "2"),
        ("FLASH", ""),
        ("/^ge/", "01"),
        ("/^ge/ -name:gemv", "0"),
        ("family:gemm", "0"),
        ("family = gemm", "0"),
        ("family=gem", ""),
        ("family:gem", "0"),
        ("family != gemm", "12"),
        ('name = "a gemm"', "0"),
        ("dur>50us", "0"),
        ("dur > 50 us", "0"),
        ("dur > 50 us gem", "0"),
        ("-share > 0.6", "01"),
        ("dur >= 50us", "01"),
        ("dur < 50us", "2"),
        ("total_ns <= 50000", "12"),
        ("dur = 0.05ms", "1"),
        ("share > 0.5", "2"),
        ("share >= 0.5", "12"),
        ("-share >= 0.5", "0"),
        ("causal = true", "2"),
        ("causal = false", ""),
        ("stream:7", "02"),
        ("family = gemm and dur > 50us", "0"),
        ("family:gemm dur>50us", "0"),
        ("gemv or flash", "12"),
        ("not gemv", "02"),
        ("not (gemv or flash)", "0"),
        ("stream:7 and (share > 0.6 or family = gemm)", "02"),
        ("-(share > 0.6)", "01"),
    ],
)
def test_where_keeps_the_rows_for_which_the_query_holds(query: str, rows: str) -> None:
    found = TABLE.where(query)
    assert found["name"].tolist() == [TABLE["name"][int(row)] for row in rows]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("(gemm", 'unclosed (: to search for the character, quote it: "("'),
        ("name > 3", "name is text: search it with name:3"),
        ("dur > x", "dur needs a number: dur > 50us"),
        ("share >", "share needs a number: share > 0.5"),
        ("causal = yes", "causal is true or false"),
        ("/(/", "/(/ is not a valid regular expression"),
    ],
)
def test_wrong_where_query_is_one_sentence(query: str, sentence: str) -> None:
    with pytest.raises(WrongQueryError) as error:
        TABLE.where(query)
    assert str(error.value).startswith(sentence)


WORDS = st.sampled_from(
    [
        *TABLE.names,
        "dur",
        "at",
        "x",
        "=",
        "!=",
        "<",
        ">=",
        ":",
        "-",
        "and",
        "or",
        "not",
        "(",
        ")",
        '"',
        "/",
        "5us",
        "1e999",
    ]
)


@given(st.lists(WORDS | st.text(max_size=3), max_size=8), st.sampled_from(["", " "]))
def test_any_text_is_a_query_or_wrong(words: list[str], between: str) -> None:
    with suppress(Error):
        assert len(TABLE.where(between.join(words))) <= len(TABLE)


def test_a_field_that_is_no_column() -> None:
    with pytest.raises(
        NoColumnError, match="kernels has no column famly: did you mean family"
    ):
        TABLE.where("famly = gemm")


any_trace = any_of("job/rank0", "collectives", "lesson-mlp-eager")


@pytest.mark.parametrize(
    "query",
    [
        "family:gemm",
        "family = comm",
        "family:pointwise",
        "kind = comm",
        "kind:pointwise or kind:gemm",
        "kind != copy and kind != op",
        "kind:other",
        "library:nccl or library = cutlass",
        "dur>50us -kind:python",
        "op = aten::mm and dur > 5us",
        "kind:kernel dur<=5us at>1ms",
        "stream:7",
        "step:6",
        "dtype:bf16",
        "/Kernel2.*tn/",
        "name = cudaLaunchKernel",
        "family:gemm or kind:memcpy",
        "(family:gemm or stream:7) and not dur > 20us",
    ],
)
def test_slices_are_those_of_the_search(any_trace: Path, query: str) -> None:
    trace = open_trace(str(any_trace))
    rows = trace_table("slices", trace).where(query)["row"]
    assert rows.tolist() == sorted(
        search(trace, collect_name_texts(trace), parse(query)).tolist()
    )
