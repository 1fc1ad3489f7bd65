"""The choices in config.toml, and what comes before them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusetui.commands import showing
from fusetui.commands.errors import CommandError
from fusetui.commands.settings import Settings, user_settings
from fusetui.tui import app


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def read(file: Path, text: str, **others: str) -> Settings:
    file.write_text(text)
    return user_settings({"FUSETUI_CONFIG": str(file), **others})


def test_each_choice(file: Path) -> None:
    found = read(file, 'theme = "light"\nascii = true\nmouse = false\n')
    assert found == Settings(theme="light", ascii=True, mouse=False)
    assert read(file, "") == user_settings({"FUSETUI_CONFIG": "off"}) == Settings()


def test_the_variable_comes_first(file: Path) -> None:
    assert read(file, 'theme = "light"', FUSETUI_THEME="dark").theme == "dark"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('theme = "purple"', "theme is 'purple'; it can be auto, dark or light."),
        ("mouse = 3", "mouse is 3; it can be true or false."),
        ("them = 1", "there is no setting 'them'; theme, ascii, mouse are."),
        ("theme", "is not valid TOML"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(file: Path, text: str, sentence: str) -> None:
    with pytest.raises(CommandError) as error:
        read(file, text)
    assert sentence in str(error.value)
    assert str(file) in str(error.value)


def test_a_theme_that_there_is_not() -> None:
    with pytest.raises(CommandError, match="FUSETUI_THEME is 'purple'; it can be auto, dark"):
        user_settings({"FUSETUI_CONFIG": "off", "FUSETUI_THEME": "purple"})


def test_a_file_that_is_named_must_exist(file: Path) -> None:
    with pytest.raises(CommandError, match="does not exist: FUSETUI_CONFIG names it"):
        user_settings({"FUSETUI_CONFIG": str(file)})


def test_options_come_before_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('theme = "light"\nmouse = false\n')
    monkeypatch.setenv("FUSETUI_CONFIG", str(file))
    monkeypatch.delenv("FUSETUI_THEME", raising=False)
    given: list[tuple[bool, bool]] = []

    def run(paths: object, *, ascii_only: bool, light: bool, mouse: bool, say: object) -> int:
        given.append((light, mouse))
        return 0

    monkeypatch.setattr(app, "run", run)
    showing.show([])
    showing.show([], theme="dark", mouse=True)
    assert given == [(True, False), (False, True)]
