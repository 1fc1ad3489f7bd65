"""The choices in config.toml, and what comes before them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusetui import Error
from fusetui.cli import UNITS_OF_VARIABLES
from fusetui.commands.open import show
from fusetui.commands.terminal import (
    Settings,
    read_user_settings,
    report_ignored_colors,
)
from fusetui.trace.cache.folder import MAX_MEGABYTES_VARIABLE
from fusetui.trace.read.unpack import LIMIT
from fusetui.tui import app


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def read(file: Path, text: str, **others: str) -> Settings:
    file.write_text(text)
    return read_user_settings({"FUSETUI_CONFIG": str(file), **others})


def test_each_setting_is_read_and_has_a_default(file: Path) -> None:
    found = read(file, 'theme = "light"\nascii = true\nmouse = false\n')
    assert found == Settings(theme="light", ascii=True, mouse=False)
    assert read(file, "") == read_user_settings({"FUSETUI_CONFIG": "off"}) == Settings()


def test_the_variable_comes_first(file: Path) -> None:
    assert read(file, 'theme = "light"', FUSETUI_THEME="dark").theme == "dark"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('theme = "purple"', "theme is 'purple'; it can be auto, dark or light."),
        ("mouse = 3", "mouse is 3; it can be true or false."),
        ("them = 1", "unknown setting 'them'; use theme, ascii, mouse."),
        ("theme", "is not valid TOML"),
        ("theme = " + "[" * 100_000, "is nested too deeply."),
        ("#" * ((1 << 20) + 1), "is larger than 1 MiB."),
        ("theme = " + "9" * 5000, "contains a number with too many digits."),
    ],
)
def test_wrong_settings_are_one_sentence(file: Path, text: str, sentence: str) -> None:
    with pytest.raises(Error) as error:
        read(file, text)
    assert sentence in str(error.value)
    assert str(file) in str(error.value)


def test_a_theme_that_there_is_not() -> None:
    with pytest.raises(Error, match="FUSETUI_THEME is 'purple'; it can be auto, dark"):
        read_user_settings({"FUSETUI_CONFIG": "off", "FUSETUI_THEME": "purple"})


def test_a_file_that_is_named_must_exist(file: Path) -> None:
    with pytest.raises(Error, match="named by FUSETUI_CONFIG, does not exist"):
        read_user_settings({"FUSETUI_CONFIG": str(file)})


def test_a_device_is_not_read(file: Path) -> None:
    """It might never end."""
    with pytest.raises(Error, match=r"/dev/zero is not a file\."):
        read_user_settings({"FUSETUI_CONFIG": "/dev/zero"})


def test_options_come_before_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('theme = "light"\nmouse = false\n')
    monkeypatch.setenv("FUSETUI_CONFIG", str(file))
    monkeypatch.delenv("FUSETUI_THEME", raising=False)
    given: list[tuple[bool, bool]] = []

    def run(
        paths: object, *, ascii_only: bool, light: bool, mouse: bool, **_: object
    ) -> int:
        given.append((light, mouse))
        return 0

    monkeypatch.setattr(app, "run", run)
    show([])
    show([], theme="dark", mouse=True)
    assert given == [(True, False), (False, True)]


@pytest.mark.parametrize("value", ["much", "-1", "nan", "inf"])
@pytest.mark.parametrize("name", sorted(UNITS_OF_VARIABLES))
def test_a_variable_that_is_no_amount_is_said_to_be_ignored(
    fusetui: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    found = fusetui("summary", "sample:mlp-eager")
    assert (found.code, found.out != "") == (0, True)
    assert found.sentence.startswith(
        f"{name} is '{value}' and is ignored: set it to a number"
    )


def test_the_variables_that_are_amounts() -> None:
    assert UNITS_OF_VARIABLES.keys() == {MAX_MEGABYTES_VARIABLE, LIMIT}


def test_colorfgbg_without_a_color_is_ignored_with_a_sentence() -> None:
    (sentence,) = report_ignored_colors({"COLORFGBG": "nonsense"})
    assert sentence.startswith("COLORFGBG is 'nonsense' and is ignored: set it to")
    for fine in ("15;0", "15;default;0", "default;default", ""):
        assert not list(report_ignored_colors({"COLORFGBG": fine}))


def test_colors_are_told_of_only_where_they_would_decide(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FUSETUI_CONFIG", "off")
    monkeypatch.setenv("COLORFGBG", "nonsense")
    monkeypatch.delenv("FUSETUI_THEME", raising=False)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(app, "run", lambda *_, **__: 0)
    show([], theme="dark")
    assert capsys.readouterr().err == ""
    show([])
    assert "COLORFGBG" in capsys.readouterr().err
