from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fusetui.report.diff_lines import differing


def test_words_and_numbers_are_marked_whole() -> None:
    a = "ampere_bf16_s16816gemm_bf16_128x128_stages_32x5_tn"
    b = "ampere_bf16_s16816gemm_bf16_128x256_stages_64x3_tn"
    marks_a, marks_b = differing(a, b)
    assert [a[n] for n, mark in enumerate(marks_a) if mark == "^"] == list("128325")
    assert [b[n] for n, mark in enumerate(marks_b) if mark == "^"] == list("256643")


def test_equal_names_have_no_marks() -> None:
    assert differing("gemm_tn", "gemm_tn") == ("", "")


@given(st.text(max_size=60), st.text(max_size=60))
def test_unmarked_characters_of_two_names_are_the_same(a: str, b: str) -> None:
    marks_a, marks_b = differing(a, b)

    def kept(name: str, marks: str) -> list[str]:
        return [
            c
            for c, mark in zip(name, marks.ljust(len(name)), strict=True)
            if mark == " "
        ]

    assert kept(a, marks_a) == kept(b, marks_b)
