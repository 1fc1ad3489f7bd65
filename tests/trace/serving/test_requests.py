"""The annotations of servers, of several versions."""

from __future__ import annotations

import pytest

from fusetui.trace.serving.requests import Asked, Phase, asked_by, merged


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("execute_new_0_cached_16", Asked(Phase.UNKNOWN, 16)),
        ("execute_new_2_cached_14", Asked(Phase.UNKNOWN, 16)),
        ("execute_context_0(0)_generation_16(16)", Asked(Phase.DECODE, 16, 16)),
        ("execute_context_1(888_788544)_generation_0(0)", Asked(Phase.PREFILL, 1, 888)),
        ("execute_context_2(900)_generation_3(3)", Asked(Phase.MIXED, 5, 903)),
        (
            "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)",
            Asked(Phase.DECODE, 32, 32, 32785),
        ),
        (
            "execute_70_context_1(sq64sk100sqsq4096sqsk6400)_generation_6(sq6sk60sqsq6sqsk60)",
            Asked(Phase.MIXED, 7, 70, 160),
        ),
        ("step[DECODE bs=16]", Asked(Phase.DECODE, 16, 16)),
        ("step[EXTEND bs=4 toks=8192]", Asked(Phase.PREFILL, 4, 8192)),
        (
            "step[DECODE bs=64 g_sqsq=64 g_sqsk=123904 g_sk=123904]",
            Asked(Phase.DECODE, 64, 64, 123904),
        ),
        ("step[TARGET_VERIFY bs=8]", Asked(Phase.VERIFY, 8)),
        ("step[DRAFT_EXTEND bs=8]", Asked(Phase.DRAFT, 8)),
        ("step[IDLE]", Asked(Phase.IDLE)),
        ("step[A_NEW_MODE bs=8]", Asked(Phase.UNKNOWN, 8)),
    ],
)
def test_known_forms(name: str, found: Asked) -> None:
    assert asked_by(name) == found


@pytest.mark.parametrize(
    "name",
    ["", "execute_model", "step[", "step[DECODE", "execute_new_x_cached_1", "execute_" + "9" * 500],
)
def test_other_names(name: str) -> None:
    assert asked_by(name) is None


def test_cached_tokens() -> None:
    assert Asked(Phase.DECODE, 32, 32, 32785).cached_tokens == 32753
    assert Asked(Phase.DECODE, 32, 32).cached_tokens is None


def test_what_two_annotations_say_together() -> None:
    outer, inner = Asked(Phase.UNKNOWN, 16, None, 800), Asked(Phase.VERIFY, 16, 64)
    assert merged(outer, inner) == Asked(Phase.VERIFY, 16, 64, 800)
