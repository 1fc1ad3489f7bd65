"""Reports of Nsight Systems are exported by nsys, if it is there and the user wants
it."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from fusetui.commands.errors import CommandError
from fusetui.commands.open import find_export

NSYS = """#!/bin/sh
while [ "$1" != --output ]; do shift; done
cp "$3" "$2"
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FUSETUI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    path = tmp_path / "a.nsys-rep"
    path.write_bytes(b"a report")
    return str(path)


def answered(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(text))


def installed(tmp_path: Path, script: str = NSYS) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nsys").write_text(script)
    (tmp_path / "bin" / "nsys").chmod(0o755)


def test_a_report_is_exported_once(
    report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path)
    answered(monkeypatch, "y\n")
    place = find_export(report)
    assert Path(place).read_bytes() == b"a report"
    assert Path(place).is_relative_to(tmp_path / "cache")
    answered(monkeypatch, "")
    assert find_export(report) == place


def test_a_link_of_another_user_in_the_cache_is_not_opened(
    report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path)
    answered(monkeypatch, "y\n")
    place = Path(find_export(report))
    place.unlink()
    (tmp_path / "foreign.sqlite").write_bytes(b"foreign")
    place.symlink_to(tmp_path / "foreign.sqlite")
    answered(monkeypatch, "y\n")
    assert Path(find_export(report)).read_bytes() == b"a report"
    assert (tmp_path / "foreign.sqlite").read_bytes() == b"foreign"


def test_an_export_of_another_user_is_not_opened(
    report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path)
    answered(monkeypatch, "y\n")
    find_export(report)
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    answered(monkeypatch, "\n")
    assert find_export(report) == report


def test_nsys_report_is_not_exported_without_a_yes(
    report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path)
    answered(monkeypatch, "\n")
    assert find_export(report) == report


def test_nsys_report_is_not_exported_without_a_terminal(
    report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert find_export(report) == report


def test_nsys_report_is_not_exported_without_nsys(
    report: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    answered(monkeypatch, "y\n")
    assert find_export(report) == report


def test_nsys_report_is_not_exported_without_a_cache(
    report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path)
    monkeypatch.setenv("FUSETUI_CACHE", "off")
    answered(monkeypatch, "y\n")
    assert find_export(report) == report


def test_a_failure_is_told_and_leaves_nothing(
    report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "#!/bin/sh\nexit 3\n")
    answered(monkeypatch, "y\n")
    with pytest.raises(CommandError, match="exited with code 3"):
        find_export(report)
    assert not list((tmp_path / "cache" / "nsys").iterdir())


def test_a_json_trace_is_not_exported(tmp_path: Path) -> None:
    assert find_export(str(tmp_path / "a.json")) == str(tmp_path / "a.json")
