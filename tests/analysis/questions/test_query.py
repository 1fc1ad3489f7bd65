"""The language of the search, and what it finds."""

from __future__ import annotations

import doctest
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetui.analysis.questions import query
from fusetui.analysis.questions.query import Bound, Pattern, Word, match_names, parse
from fusetui.analysis.questions.query_text import WrongQueryError
from fusetui.analysis.questions.search import (
    collect_name_texts,
    search,
    search_args_for_words,
    search_in_args,
)
from fusetui.trace import Trace

Make = Callable[..., Any]
CUTLASS = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
NVJET = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT"
TENSILE = "Cijk_Alik_Bljk_BBS_BH_MT128x128x64_MI16x16x16x1_SN_K1"
SOFTMAX = "void cunn_SoftMaxForward<4, float>"


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("gemm", (Word("", "gemm"),)),
        ("family:gemm", (Word("family", "gemm"),)),
        ("dur>50us", (Bound("dur", True, 50_000),)),
        ("-dur<1.5ms", (Bound("dur", False, 1_500_000, excluded=True),)),
        ('"two words"', (Word("", "two words"),)),
        ('op:"two words"', (Word("op", "two words"),)),
        ("aten::mm", (Word("", "aten::mm"),)),
        ("op::x", (Word("", "op::x"),)),
        ("/tn_ .*fp8/", (Pattern("tn_ .*fp8"),)),
        ("/usr/lib", (Word("", "/usr/lib"),)),
        ("-", (Word("", "-"),)),
        ("vector<int>", (Word("", "vector<int>"),)),
        ("", ()),
        ("dur > 50us", (Bound("dur", True, 50_000),)),
        ("dur >= 50us", (Bound("dur", False, 50_000, excluded=True),)),
        ("-dur <= 50us", (Bound("dur", True, 50_000),)),
        ("family = gemm", (Word("family", "gemm", whole=True),)),
        ('-op="two words"', (Word("op", "two words", excluded=True, whole=True),)),
        ("family != gemm", (Word("family", "gemm", excluded=True, whole=True),)),
        (
            "family:gemm and kind:kernel",
            (Word("family", "gemm"), Word("kind", "kernel")),
        ),
        ("and", (Word("", "and"),)),
        ('a "and" b', (Word("", "a"), Word("", "and"), Word("", "b"))),
        ("logical_and", (Word("", "logical_and"),)),
        ("x=1", (Word("", "x=1"),)),
        ("name < 3", (Word("", "name"), Word("", "<"), Word("", "3"))),
        ("a  -b", (Word("", "a"), Word("", "b", excluded=True))),
    ],
)
def test_query_text_is_parsed_into_terms(
    text: str, terms: tuple[query.Term, ...]
) -> None:
    assert parse(text).terms == terms


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("dur>50", "dur> needs a time with a unit: dur>50us"),
        ("dur >", "dur> needs a time with a unit: dur>50us"),
        ("dur = 50us", "dur needs a comparison: dur>50us or dur<2ms"),
        ("dur:50us", "dur needs a comparison: dur>50us or dur<2ms"),
        ("/(/", "/(/ is not a valid regular expression"),
        ("x" * 501, "a search can have at most 500 characters"),
    ],
)
def test_wrong_query_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(WrongQueryError, match=r"[a-z]") as error:
        parse(text)
    assert str(error.value).startswith(sentence)


@given(st.text(max_size=40))
def test_any_text_is_a_query_or_wrong(text: str) -> None:
    with suppress(WrongQueryError):
        assert all(parse(text).terms)


def test_examples_in_docstrings_of_queries_hold() -> None:
    assert doctest.testmod(query).failed == 0


@pytest.fixture
def trace(trace_of: Make) -> Trace:
    """Two ops, which launch two kernels on stream 7; two more on stream 8, a copy."""

    def slice_(
        name: str, cat: str, ts: int, dur: int, tid: int, **args: Any
    ) -> dict[str, Any]:
        pid = 0 if cat in ("kernel", "gpu_memcpy") else 1
        return {
            **{
                "ph": "X",
                "name": name,
                "cat": cat,
                "pid": pid,
                "tid": tid,
                "ts": ts,
                "dur": dur,
            },
            "args": args,
        }

    found: Trace = trace_of(
        [
            slice_("ProfilerStep#0", "user_annotation", 0, 99, 1),
            slice_(
                "aten::mm",
                "cpu_op",
                0,
                20,
                1,
                **{"Input Dims": [[8192, 768], [768, 3072]]},
            ),
            slice_("cudaLaunchKernel", "cuda_runtime", 5, 5, 1, correlation=1),
            slice_(
                "aten::softmax", "cpu_op", 30, 20, 1, **{"Input Dims": [[8192, 76]]}
            ),
            slice_("cudaLaunchKernel", "cuda_runtime", 35, 5, 1, correlation=2),
            slice_(CUTLASS, "kernel", 20, 100, 7, correlation=1, grid=[3, 1, 1]),
            slice_(SOFTMAX, "kernel", 130, 40, 7, correlation=2),
            slice_(NVJET, "kernel", 200, 60, 8),
            slice_(TENSILE, "kernel", 270, 30, 8),
            slice_("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", 310, 10, 7),
        ]
    )
    return found


def names(trace: Trace, text: str) -> Sequence[str]:
    wanted = parse(text)
    rows = search(trace, collect_name_texts(trace), wanted)
    if wanted.reads_args:
        *_, (rows, share) = search_in_args(trace, collect_name_texts(trace), wanted)
        assert share == 1.0
    return [trace.name_of(int(row)) for row in rows]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gemm", [CUTLASS, NVJET, TENSILE]),
        ("family:gemm dur>50us", [CUTLASS, NVJET]),
        ("family:gemm dur<50us", [TENSILE]),
        ("gemm stream:7", [CUTLASS]),
        ("tile:128x128 stream:8", [TENSILE]),
        ("kind:memcpy", ["Memcpy DtoH (Device -> Pageable)"]),
        ("kind:copy", ["Memcpy DtoH (Device -> Pageable)"]),
        ("kind:gemm dur>50us", [CUTLASS, NVJET]),
        ("kind:reduction", [SOFTMAX]),
        ("kind:softmax", [SOFTMAX]),
        ("library:tensile", [TENSILE]),
        ("kind:kernel op:softmax", [SOFTMAX]),
        ("softmax -kind:op", [SOFTMAX]),
        ("SoftMax", [SOFTMAX]),
        ("step:0 kind:kernel", [CUTLASS, SOFTMAX]),
        ("at>250us", [TENSILE, "Memcpy DtoH (Device -> Pageable)"]),
        ("/^Cijk.*_BH_/", [TENSILE]),
        ("-/./", []),
        ("shape:8192x768", ["aten::mm", "cudaLaunchKernel", CUTLASS]),
        ("kind:kernel shape:8192x76", [SOFTMAX]),
        ("kind:kernel -shape:8192", [NVJET, TENSILE]),
        ("args:[3,1,1]", [CUTLASS]),
        ("kind:memcpy or at>250us", [TENSILE, "Memcpy DtoH (Device -> Pageable)"]),
        ("kind:kernel not (stream:7 or tile:128x128)", [NVJET]),
        ("kind:kernel (shape:8192x76 or stream:8)", [SOFTMAX, NVJET, TENSILE]),
        (
            "not (shape:8192 or kind:call or step:0)",
            [NVJET, TENSILE, "Memcpy DtoH (Device -> Pageable)"],
        ),
        ("", []),
        ("nowhere", []),
    ],
)
def test_query_finds_the_expected_slices(
    trace: Trace, text: str, expected: Sequence[str]
) -> None:
    assert names(trace, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8192x768", ["aten::mm", "cudaLaunchKernel", CUTLASS]),
        ("3,1,1", [CUTLASS]),
        ("gemm 8192x768", [CUTLASS]),
        ("8192x768 -kind:op -stream:7", ["cudaLaunchKernel"]),
        ("8192x768 dur>50us", [CUTLASS]),
        ("8192x768 -gemm", ["aten::mm", "cudaLaunchKernel"]),
        ("8192x768 8192x76", []),
        ("softmax", []),
        ("8192x76 or 3,1,1", [CUTLASS, "aten::softmax", "cudaLaunchKernel", SOFTMAX]),
        ("gemm or 3,1,1", []),
    ],
)
def test_words_are_found_in_args_too(
    trace: Trace, text: str, expected: Sequence[str]
) -> None:
    """Where names do not say them."""
    wanted, texts = parse(text), collect_name_texts(trace)
    named = search(trace, texts, wanted)
    *_, (rows, share) = search_args_for_words(trace, texts, wanted, named)
    assert share == 1.0
    assert [trace.name_of(int(row)) for row in rows] == expected


def test_args_without_a_searched_word_are_not_decoded(
    trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusetui.analysis.questions.search.arguments", None)
    wanted, texts = parse("4711x12"), collect_name_texts(trace)
    nothing = search(trace, texts, wanted)
    assert [
        (len(rows), share)
        for rows, share in search_args_for_words(trace, texts, wanted, nothing)
    ] == [(0, 1.0)]
    with pytest.raises(TypeError, match="not callable"):
        next(search_args_for_words(trace, texts, parse("8192x76"), nothing))


def test_a_pattern_that_takes_exponential_time_is_given_up() -> None:
    with pytest.raises(WrongQueryError, match="takes longer than"):
        match_names("(a|aa)+$", ["a" * 60 + "!"], seconds=0.3)


def test_a_pattern_is_given_any_name() -> None:
    assert match_names("é", ["caf\u00e9", "\ud800", "x\ny"]).tolist() == [
        True,
        False,
        False,
    ]


def test_query_finds_nothing_in_an_empty_trace(trace_of: Make) -> None:
    assert names(trace_of([]), "gemm") == []
    assert names(trace_of([]), "shape:3") == []
