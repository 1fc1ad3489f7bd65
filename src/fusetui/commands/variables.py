"""Variables of the environment whose value means nothing: they are ignored, and it is said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

AMOUNTS = {"FUSETUI_CACHE_MB": "megabytes", "FUSETUI_UNPACK_LIMIT": "GiB"}
"""Our variables that hold a number, and what it counts."""
COLORS = "COLORFGBG"


def ignored(environment: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each of our variables that is ignored."""
    for name, unit in AMOUNTS.items():
        if text := environment.get(name):
            from fusetui.trace.model.variables import amount  # only where one is set

            if amount(text) is None:
                yield f"{name} is {text!r} and is ignored: set it to a number of {unit}."


def ignored_colors(environment: Mapping[str, str]) -> Iterator[str]:
    """A sentence if COLORFGBG says nothing about the background. `default` is the word of rxvt for
    a color that is none of the 16."""
    text = environment.get(COLORS, "")
    last = text.rpartition(";")[2]
    if text and last != "default" and not last.isdecimal():
        yield (
            f"{COLORS} is {text!r} and is ignored: it should name the colors of text and "
            "background, as in 15;0; --theme light or dark decides."
        )
