"""The diff as JSON, as a table and as Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import msgspec

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff
from fusetui.report.diff import document, format_diff, format_markdown
from fusetui.report.diff_lines import OVERLAP, DiffLine, largest, lines, sort_by_effect
from fusetui.trace import Trace

Build = Callable[..., Trace]

WITHIN = r"within these two runs, 5 steps\)$"
FUSED = "triton_poi_fused_gelu_mul_0"
A = [("aten::mm", "gemm", 20.0), ("aten::gelu", "g", 8.0), ("aten::mul", "m", 6.0)]
B = [("aten::mm", "gemm", 20.0), (FUSED, FUSED, 7.0)]


def changed(build: Build) -> Diff:
    return diff(build(A), build(B))


def line(text: str, word: str) -> str:
    return next(line for line in text.splitlines() if word in line)


def test_json_has_the_keys_of_the_contract(build: Build) -> None:
    found = json.loads(msgspec.json.encode(document(changed(build))))
    assert {"a", "b", "step_ns", "rows"} <= found.keys()
    assert set(found["step_ns"]) == {"a", "b", "ratio", "low", "high"}
    row = next(row for row in found["rows"] if row["kind"] == "fused")
    assert (row["op"], row["a"], row["b"]) == (
        "aten::gelu + aten::mul",
        ["g", "m"],
        [FUSED],
    )
    assert (row["a_ns"], row["b_ns"], row["a_count"], row["b_count"]) == (
        14_000,
        7_000,
        2,
        1,
    )


def test_by_effect_puts_the_largest_change_first(build: Build) -> None:
    changes = [
        abs(row.change_ns)
        for row in sort_by_effect(lines(changed(build)))
        if row.counts
    ]
    assert changes == sorted(changes, reverse=True)


def unchanged_line(number: int) -> DiffLine:
    return DiffLine("~", "same", 1_000, 1_000, 0, f"same {number}")


BESIDE = DiffLine("+", "slower", 1, 9, 7_600_000, "only in step 7", counts=False)


def test_a_change_beside_the_sum_comes_before_lines_without_a_change() -> None:
    ordered = sort_by_effect([unchanged_line(1), BESIDE, unchanged_line(2)])
    assert ordered[0] is BESIDE


def test_lines_of_the_sum_come_before_those_beside_it() -> None:
    counted = DiffLine("-", "faster", 9_000, 1_000, -8_000, "matmul")
    assert sort_by_effect([BESIDE, counted]) == [counted, BESIDE]


def test_the_largest_lines_leave_no_larger_change_out_for_a_line_of_the_sum() -> None:
    small = [
        DiffLine("+", "slower", 0, n, 100 * n, f"kernel {n}") for n in range(2, 50)
    ]
    changes = largest([*small, BESIDE], 40)
    assert BESIDE in changes.shown
    assert len(changes.shown) == 40
    largest_left_out = max(abs(line.change_ns) for line in changes.rest)
    assert largest_left_out <= min(abs(line.change_ns) for line in changes.shown)


def test_lines_of_zeros_are_left_out_before_any_other() -> None:
    zeros = DiffLine("~", "same", 0, 0, 0, "empty")
    assert largest([zeros, BESIDE], 40).rest == [zeros]


def test_the_first_line_is_the_answer(build: Build) -> None:
    first = format_diff(changed(build), 200).splitlines()[0]
    assert re.search(
        r"B is [\d.]+ % faster \(95 % CI [\d.]+ to [\d.]+ % within these two runs, 5 steps\)$",
        first,
    )


def test_change_within_noise_is_no_significant_difference(build: Build) -> None:
    a, b = build(A, (1.0, 1.3, 1.1, 1.4, 1.2)), build(A, (1.2, 1.1, 1.4, 1.0, 1.1))
    text = format_diff(diff(a, b), 300).splitlines()[0]
    pattern = (
        r"No significant difference: [\d.]+ % faster \(95 % CI [\d.]+ % slower to "
        r"[\d.]+ % faster "
    )
    assert re.search(pattern + WITHIN, text)


def test_first_line_of_equal_steps_says_no_significant_difference(build: Build) -> None:
    trace = build(A)
    text = format_diff(diff(trace, trace), 300).splitlines()[0]
    assert text.endswith(
        "No significant difference: as fast as A (95 % CI 0 to 0 % within "
        "these two runs, 5 steps)"
    )


def test_where_nothing_can_be_told_the_text_says_why(build: Build) -> None:
    found = diff(build(A, (1.0,) * 3), build(B))
    said = "needs at least 5 steps per trace (A 3, B 5). Observed: B 17.9 %"
    assert said in format_diff(found, 300).splitlines()[0]
    assert said in format_markdown(found).splitlines()[0]


def test_marks_tell_the_direction_without_color(build: Build) -> None:
    text = format_diff(changed(build))
    assert line(text, "aten::mm").startswith("  ~ ")
    assert line(text, "aten::gelu + aten::mul ->").startswith("  - ")
    text = format_diff(diff(build(B), build(A)))
    assert line(text, "split").startswith("  + ")


def test_the_sum_is_closed_in_front_of_the_reader(build: Build) -> None:
    text = format_diff(changed(build))
    for word in ("idle", "not explained", "from the total"):
        assert word in text


def test_no_line_is_wider_than_asked(build: Build) -> None:
    for width in (60, 80, 118):
        assert max(map(len, format_diff(changed(build), width).splitlines())) <= width


def test_repeated_rows_are_one_line(build: Build) -> None:
    trace = build(A * 12)
    assert "x12" in line(format_diff(diff(trace, trace)), "aten::gelu")


def test_of_many_lines_the_largest_are_shown(build: Build) -> None:
    many = [(f"my::op{n}", f"kernel{n}", 5.0 + n) for n in range(70)]
    text = format_diff(diff(build(many), build(many[:1])))
    assert "31 smaller changes" in text
    assert "my::op69" in text


def test_a_line_without_time_on_either_side_is_told_only_among_all(
    build: Build,
) -> None:
    trace = build([("my::op", "kernel", 5.0), ("my::empty", "nothing", 0.0)])
    found = diff(trace, trace)
    assert "my::empty" not in format_diff(found)
    assert "1 smaller change" in format_diff(found)
    assert any("my::empty" in one.what for one in lines(found))


def test_an_overlap_too_short_to_be_shown_is_not_told(build: Build) -> None:
    """The second kernel starts 9 us after the first: they overlap by 30 ns."""
    a = build([("my::op", "kernel", 9.0), ("my::op", "other", 9.0, 8)])
    b = build([("my::op", "kernel", 9.03), ("my::op", "other", 9.0, 8)])
    found = diff(a, b)
    assert found.accounting.overlap_ns == -30
    for text in (format_diff(found), format_markdown(found)):
        assert OVERLAP not in text
        assert "-0.0" not in text


def test_hostile_names_are_escaped(build: Build) -> None:
    evil = "evil\x1b[2J\nkernel|`<b>"
    found = diff(build([("aten::mm\x07", evil)]), build([("aten::add", "k")]))
    for text in (format_diff(found), format_markdown(found)):
        assert "\x1b" not in text
        assert "\x07" not in text
    assert "evil\n" not in format_diff(found)


def test_the_name_of_a_device_is_escaped(build: Build) -> None:
    def on(name: str) -> Trace:
        return build(A, deviceProperties=[{"id": 0, "name": name}])

    found = diff(on("A100"), on("H100\x1b[2J"))
    assert "\x1b" in str(found.verdict.reason)
    assert "\x1b" not in format_diff(found)


def test_markdown_is_a_table_whose_cells_names_cannot_break(build: Build) -> None:
    found = diff(build([("aten::mm", "a|b`c")]), build([("aten::add", "k")]))
    table = [
        text for text in format_markdown(found).splitlines() if text.startswith("|")
    ]
    row = line("\n".join(table), "aten::mm")
    assert "a\\|b\\`c" in row
    assert row.replace("\\|", "").count("|") == 6


def test_markdown_leaves_out_what_is_the_same(build: Build) -> None:
    assert "aten::mm" not in format_markdown(changed(build))
