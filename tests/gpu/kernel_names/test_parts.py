"""Parts of a name."""

from fusetui.gpu.kernel_names.record import explain_tokens, ordered


def test_parts_are_sorted_and_apart() -> None:
    parts = [(5, 9, "c"), (0, 4, "a"), (3, 6, "b"), (9, 9, "empty")]
    assert ordered(parts) == ((0, 4, "a"), (5, 9, "c"))


def test_words_between_underscores() -> None:
    name = "x_relu__bias_y"
    parts = explain_tokens(name, 1, len(name), {"relu": "R", "bias": "B"}.get)
    assert [(name[start:end], text) for start, end, text in parts] == [("relu", "R"), ("bias", "B")]
