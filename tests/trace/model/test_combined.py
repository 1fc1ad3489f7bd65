"""Two documents as one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.analysis.servers import call, cpu, opened

from fusetui.trace.model.events import arguments
from fusetui.trace.read.document_text import list_text
from fusetui.trace.read.elements import Elements, combined
from fusetui.trace.read.reread import Reread


def both_of(tmp_path: Path) -> Elements:
    a = opened(tmp_path / "a.json", [cpu("a", 0, 1), call("b", 5, 1, 1, x="one")])
    b = opened(
        tmp_path / "b.json",
        [call("c", 0, 1, 2, x="two"), call("d", 5, 1, 3, x="three")],
    )
    return combined(a.elements, b.elements)


def test_combined_documents_give_elements_and_args_of_both(tmp_path: Path) -> None:
    both = both_of(tmp_path)
    assert [both.element(n)["name"] for n in range(4)] == ["a", "b", "c", "d"]
    found = arguments(both, np.array([3, 1, 2]), ("x",))
    assert [found.distinct[n] for n in found.number] == [
        (b'"three"',),
        (b'"one"',),
        (b'"two"',),
    ]


def test_text_and_args_of_combined_traces_come_from_the_right_document(
    tmp_path: Path,
) -> None:
    both = both_of(tmp_path)
    texts = [bytes(list_text(both.text, stretch)) for stretch in both.stretches]
    assert [b'"one"' in text for text in texts] == [True, False]
    assert [b'"two"' in text for text in texts] == [False, True]
    again = Reread(both, np.array([1, 3]), ("x",))
    found = again.args([again.part(n) for n in range(2)])
    assert [found.texts[n] for n in found.number] == [b'"one"', b'"three"']


def test_three_documents_are_combined(tmp_path: Path) -> None:
    both = both_of(tmp_path)
    third = opened(tmp_path / "c.json", [call("e", 0, 1, 4, x="four")])
    every = combined(both, third.elements)
    assert every.element(4)["name"] == "e"
    assert b'"four"' in bytes(list_text(every.text, every.stretches[2]))
    assert every.own is both.own
