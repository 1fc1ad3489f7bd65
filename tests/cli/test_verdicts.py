"""What `check` and `diff --fail-over` tell a pipeline; tests/cli/test_action.py has
whole jobs."""

from __future__ import annotations

import gzip
import stat
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.hostile import PAYLOADS, WORST, obeyed

from fusetui.commands.verdicts import Case, Outcome, annotation, junit, summary
from fusetui.text.printable import printable

Run = Callable[..., Any]
File = Callable[..., Path]
NAMES = [*PAYLOADS.values(), WORST, "::error::x", "##[error]x", "a,b:c%25", "]]>&<\"'"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_stays_in_its_place(name: str) -> None:
    case = Case(f"{name}=1", Outcome.FAILED, f"{name} is wrong.", f"{name}.json")
    line = annotation("check", case)
    assert not obeyed(line, "")
    head, values, said = line.partition(" ")[0], *line.partition(" ")[2].split("::", 1)
    assert head == "::error"
    assert said.replace("%25", "%") == f"{printable(name)} is wrong."
    file, title = values.split(",")
    unescaped = file.replace("%2C", ",").replace("%3A", ":").replace("%25", "%")
    assert unescaped == f"file={printable(name)}.json"
    assert title == "title=fusetui check"
    (test,) = ET.fromstring(junit("check", [case])).iter("testcase")
    assert test.attrib["name"] == f"{printable(name)}=1"
    assert test[0].attrib["message"] == f"{printable(name)} is wrong."
    told = summary("check", [case], [])
    assert told.count("\n") == summary(
        "check", [Case("x", Outcome.FAILED, "x")], []
    ).count("\n")
    assert not obeyed(told.replace("@\u200b", "@"))


def test_a_url_is_told_without_its_signature() -> None:
    case = Case(
        "x", Outcome.FAILED, "https://me:secret@host/a.json?sig=secret is wrong."
    )
    for told in (
        annotation("diff", case),
        junit("diff", [case]),
        summary("diff", [case], []),
    ):
        assert "host/a.json" in told
        assert "secret" not in told


def test_a_summary_is_never_too_large_for_github() -> None:
    case = Case("x", Outcome.PASSED, "x" * 100)
    for cases, more in (([case], ["y" * 9_000] * 900), ([case] * 9_000, [])):
        told = summary("diff", cases, more)
        assert len(told) < 1 << 18
        assert told.endswith("More results do not fit on this page.\n")
    assert "do not fit" not in summary("diff", [Case("x", Outcome.PASSED, "x")], ["y"])


def test_a_guess_is_a_test(fusetui: Run, trace_file: File, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text("an older one")
    words = ("check", trace_file(), "--github", "--junit", report)
    right = fusetui(*words, "--expect", "kernels=4")
    assert (right.code, right.err) == (0, "")
    assert ET.parse(report).getroot()[0].attrib["failures"] == "0"
    wrong = fusetui(*words, "--expect", "kernels=4 gemm=2")
    assert wrong.code == 1
    assert wrong.sentence.startswith(
        f"::error file={tmp_path}/a.json,title=fusetui check::{tmp_path}"
    )
    assert wrong.sentence.endswith(
        "expected gemm=2, found 3 (counted kernels in each of 3 steps)."
    )
    suite = ET.parse(report).getroot()[0]
    assert [len(test) for test in suite] == [0, 1]


PARTS: dict[str, Callable[[bytes], bytes]] = {
    "cut between events": lambda whole: whole[: whole.rindex(b", {")],
    "cut in an event": lambda whole: whole[:-60],
    "cut in its last brackets": lambda whole: whole[:-1],
    "a damaged event": lambda whole: whole.replace(b'"ts": 2010', b'"ts": "?"', 1),
    "cut while packed": lambda whole: gzip.compress(whole, 0)[:-500],
    "packed from a part": lambda whole: gzip.compress(whole[:-60]),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_incomplete_trace_passes_no_gate(
    fusetui: Run, trace_file: File, tmp_path: Path, part: Callable[[bytes], bytes]
) -> None:
    whole, partial = trace_file(steps=12), tmp_path / "partial.json"
    partial.write_bytes(part(whole.read_bytes()))
    assert fusetui("diff", whole, whole, "--fail-over", 5).code == 0
    report = tmp_path / "report.xml"
    for pair in ((whole, partial), (partial, whole)):
        found = fusetui("diff", *pair, "--fail-over", 5, "--junit", report)
        assert found.code == 2
        assert str(partial) in found.sentence
        (case,) = ET.parse(report).getroot()[0]
        assert (case.attrib["name"], case[0].tag) == (str(partial), "error")
    for guess in ("kernels=4", "kernels=5"):
        found = fusetui("check", partial, "--expect", guess)
        assert found.code == 2
        assert str(partial) in found.sentence
        assert fusetui("check", partial, "--expect", guess, "--junit", report).code == 2


def test_a_file_cut_short_is_an_error(
    fusetui: Run, trace_file: File, tmp_path: Path
) -> None:
    whole, cut, report = (
        trace_file(steps=8),
        tmp_path / "cut.json.gz",
        tmp_path / "report.xml",
    )
    cut.write_bytes(gzip.compress(whole.read_bytes(), 0)[:-500])
    found = fusetui("diff", whole, cut, "--fail-over", 5, "--github", "--junit", report)
    assert found.code == 2
    assert f"::error file={cut},title=fusetui diff::{cut} could not" in found.err
    assert ET.parse(report).getroot()[0].attrib["errors"] == "1"


def test_github_without_fail_over_is_refused(fusetui: Run, trace_file: File) -> None:
    path = trace_file()
    found = fusetui("diff", path, path, "--github")
    assert (found.code, found.out) == (2, "")
    assert "--fail-over" in found.sentence


def test_junit_file_that_cannot_be_written_is_one_sentence(
    fusetui: Run, trace_file: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("check", trace_file(), "--expect", "kernels=4")
    for place in (tmp_path, "/dev/null", tmp_path / "none" / "report.xml"):
        found = fusetui(*words, "--junit", place)
        assert found.code == 2
        assert found.sentence.startswith(str(place))
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    assert fusetui(*words, "--github").sentence.startswith(
        "GITHUB_STEP_SUMMARY cannot be written"
    )
