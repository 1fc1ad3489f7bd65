"""What changed from one trace to another, in words."""

from __future__ import annotations

from collections.abc import Sequence

from fusetui.analysis.why.compared import below_rows, finding_rows
from fusetui.analysis.why.telling import NOTHING, named, qualified
from fusetui.analysis.why.versus import Moved, Versus
from fusetui.text.figures import change as changed
from fusetui.text.figures import duration, signed_duration
from fusetui.text.printable import markdown, markdown_table

MOVED = 5  # modules, and families


def verdict(found: Versus) -> str:
    """The largest change of any class or reason, of which there is at least one."""
    parts = [one for one in found.change if one.name not in ("span", "idle")]
    span = next(one for one in found.change if one.name == "span")
    longer = changed(span.a_ns, span.b_ns).replace("as much", "as long")
    text = f"B's {found.of} takes {longer}"
    largest = max(parts, key=lambda one: abs(one.b_ns - one.a_ns), default=None)
    if largest is None or largest.a_ns == largest.b_ns:
        return f"{text}: every class takes as long as before."
    more = duration(abs(largest.b_ns - largest.a_ns))
    way = "more" if largest.b_ns > largest.a_ns else "less"
    return f"{text}. The largest change: {more} {way}, {named(largest.name)}."


def versus_markdown(found: Versus) -> str:
    """What changed most, and a table of the classes of both sides."""
    head = f"**{markdown(found.a.file)} -> {markdown(found.b.file)}**"
    if not found.change:
        return f"{head}: {markdown(NOTHING)}\n"
    rows = [
        (
            markdown(named(one.name)),
            duration(one.a_ns),
            duration(one.b_ns),
            signed_duration(one.b_ns - one.a_ns),
        )
        for one in found.change
    ]
    lines = [f"{head}: {markdown(verdict(found))}", ""]
    for side, why in (("A", found.a), ("B", found.b)):
        lines += [line for text in qualified(why) for line in (markdown(f"{side}: {text}"), "")]
    lines += markdown_table([found.of, "A", "B", "change"], rows, [0])
    for title, moved in (("module", found.modules), ("kernel family", found.families)):
        lines += ["", *_moved(title, moved[:MOVED])] if moved else []
    if told := finding_rows(found.findings):
        lines += ["", *markdown_table(["finding", "", "A", "B", "change"], told, [0, 1])]
    for text in below_rows(found.findings, found.is_sure):
        lines += ["", markdown(text)]
    return "\n".join(lines) + "\n"


def _moved(title: str, moved: Sequence[Moved]) -> list[str]:
    rows = [
        (
            markdown(one.name or "unknown names"),
            duration(one.a_ns),
            duration(one.b_ns),
            signed_duration(one.b_ns - one.a_ns),
        )
        for one in moved
    ]
    return markdown_table([title, "A", "B", "change"], rows, [0])
