"""The annotations of servers, of several versions."""

from __future__ import annotations

import pytest

from fusetui.analysis.questions.server_steps import (
    Requested,
    ServerPhase,
    combine_annotations,
    parse_step_name,
)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("execute_new_0_cached_16", Requested(ServerPhase.UNKNOWN, 16)),
        ("execute_new_2_cached_14", Requested(ServerPhase.UNKNOWN, 16)),
        (
            "execute_context_0(0)_generation_16(16)",
            Requested(ServerPhase.DECODE, 16, 16),
        ),
        (
            "execute_context_0(0)_generation_16(64)",
            Requested(ServerPhase.VERIFY, 16, 64),
        ),
        (
            "execute_context_1(888_788544)_generation_0(0)",
            Requested(ServerPhase.PREFILL, 1, 888),
        ),
        (
            "execute_context_2(900)_generation_3(3)",
            Requested(ServerPhase.MIXED, 5, 903),
        ),
        (
            "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)",
            Requested(ServerPhase.DECODE, 32, 32, 32785),
        ),
        (
            "execute_70_context_1(sq64sk100sqsq4096sqsk6400)_generation_6(sq6sk60sqsq6sqsk60)",
            Requested(ServerPhase.MIXED, 7, 70, 160),
        ),
        ("step[DECODE bs=16]", Requested(ServerPhase.DECODE, 16, 16)),
        ("step[EXTEND bs=4 toks=8192]", Requested(ServerPhase.PREFILL, 4, 8192)),
        (
            "step[DECODE bs=64 g_sqsq=64 g_sqsk=123904 g_sk=123904]",
            Requested(ServerPhase.DECODE, 64, 64, 123904),
        ),
        ("step[TARGET_VERIFY bs=8]", Requested(ServerPhase.VERIFY, 8)),
        ("step[DRAFT_EXTEND bs=8]", Requested(ServerPhase.DRAFT, 8)),
        (
            "step[EXTEND bs=2 toks=90 c_sqsq=4100 c_sqsk=4100 c_sk=100]",
            Requested(ServerPhase.PREFILL, 2, 90, 100),
        ),
        (
            "step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=262144 g_sk=131072]",
            Requested(ServerPhase.DECODE, 64, 128, 131072),
        ),
        (
            "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40"
            " g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]",
            Requested(ServerPhase.MIXED, 2, 6, 20),
        ),
        (
            "prefill[bs=2 tok=14721 ctx=[7803, 6918]]",
            Requested(ServerPhase.PREFILL, 2, 14721),
        ),
        (
            "prefill[bs=6 tok=17408 ctx=[4096, 4096, 4096]...+3]",
            Requested(ServerPhase.PREFILL, 6, 17408),
        ),
        ("decode[bs=117/128 tok=117 d=117]", Requested(ServerPhase.DECODE, 117, 117)),
        (
            "decode[bs=32 tok=128 d=32 spec=3 sqsq=512 sqsk=262144 sk=65536]",
            Requested(ServerPhase.VERIFY, 32, 128, 65536),
        ),
        (
            "decode[bs=128 tok=384 p=2 d=126 sk=258048 tbo=1]",
            Requested(ServerPhase.MIXED, 128, 384, 258048),
        ),
        ("step[IDLE]", Requested(ServerPhase.IDLE)),
        ("step[A_NEW_MODE bs=8]", Requested(ServerPhase.UNKNOWN, 8)),
    ],
)
def test_annotations_of_servers_are_parsed_into_requests(
    name: str, found: Requested
) -> None:
    assert parse_step_name(name) == found


@pytest.mark.parametrize(
    "name",
    [
        "",
        "execute_model",
        "decode[bs=",
        "decode[bs=1] x",
        "prefill[bs=x]",
        "step[",
        "step[DECODE",
        "execute_new_x_cached_1",
        "execute_" + "9" * 500,
    ],
)
def test_other_annotations_are_no_requests(name: str) -> None:
    assert parse_step_name(name) is None


def test_cached_tokens_are_context_without_new_tokens() -> None:
    assert Requested(ServerPhase.DECODE, 32, 32, 32785).cached_tokens == 32753
    assert Requested(ServerPhase.DECODE, 32, 32).cached_tokens is None


def test_two_annotations_of_a_step_are_combined() -> None:
    outer, inner = (
        Requested(ServerPhase.UNKNOWN, 16, None, 800),
        Requested(ServerPhase.VERIFY, 16, 64),
    )
    assert combine_annotations(outer, inner) == Requested(
        ServerPhase.VERIFY, 16, 64, 800
    )
