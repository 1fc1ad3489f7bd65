"""Names with their parts underlined."""

from __future__ import annotations

from functools import partial

from fusetui.gpu.kernel_names import record

annotate = partial(record.annotate, ends=record.UNDERLINE)

PARTS = [
    (0, 6, "tuned for sm80"),
    (7, 8, "fp32 sums"),
    (13, 15, "32 rows"),
    (19, 21, "tn"),
]


def test_parts_of_a_name_are_underlined_and_numbered_with_a_legend() -> None:
    found = annotate("ampere_sgemm_32x32_tn", PARTS, 80)
    assert found.lines == (("ampere_sgemm_32x32_tn", "└─1──┘ 2     3─    4─"),)
    assert found.legend == ("1 tuned for sm80", "2 fp32 sums", "3 32 rows", "4 tn")


def test_a_long_name_is_wrapped_to_the_width_with_its_underlines() -> None:
    lines = annotate("ampere_sgemm_32x32_tn", PARTS, 10).lines
    assert "".join(text for text, _ in lines) == "ampere_sgemm_32x32_tn"
    assert all(len(text) <= 10 and len(under) <= 10 for text, under in lines)


def test_more_than_nine_parts_keep_one_sign_each() -> None:
    found = annotate("abcdefghijkl", [(n, n + 1, f"part {n}") for n in range(12)], 80)
    assert found.lines[0][1] == "123456789abc"
    assert found.legend[11] == "c part 11"


def test_forty_parts_give_forty_lines_of_legend() -> None:
    found = annotate("x" * 120, [(3 * n, 3 * n + 3, "y") for n in range(40)], 200)
    assert len(found.legend) == 40
    assert found.legend[39] == "40 y"


def test_escaped_names_keep_their_marks() -> None:
    ((text, under),) = annotate("a\x1bb", [(2, 3, "b")], 80).lines
    assert text == r"a\x1bb"
    assert under == "     1"


def test_a_name_may_be_empty() -> None:
    assert annotate("", [], 80).lines == (("", ""),)


def test_a_name_without_parts_has_no_underline() -> None:
    assert annotate("abc", [], 80).lines == (("abc", ""),)
