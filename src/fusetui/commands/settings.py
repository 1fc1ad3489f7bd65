"""What a person has chosen for every run: config.toml in the user's config folder.

    theme = "light"
    ascii = false
    mouse = false

Options of the command line and variables come first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args

import msgspec

from fusetui.commands.errors import CommandError
from fusetui.text.toml import table_in, text_of

PLACE = "FUSETUI_CONFIG"  # names another file, or is `off`
FILE = "config.toml"
COLORS = "COLORFGBG"
Theme = Literal["auto", "dark", "light"]
THEMES: tuple[str, ...] = get_args(Theme)


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every choice has a default."""

    theme: Theme = "auto"
    ascii: bool = False
    mouse: bool = True


def user_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """The choices of this user; the defaults where there is no file. Raises WrongFile, and
    CommandError for a variable that is wrong."""
    found = _from_file(environment.get(PLACE, ""))
    theme = environment.get("FUSETUI_THEME") or found.theme
    if theme not in THEMES:
        raise CommandError(f"FUSETUI_THEME is {theme!r}; it can be auto, dark or light.")
    return msgspec.structs.replace(found, theme=theme)


def _from_file(place: str) -> Settings:
    if place == "off":
        return Settings()
    if place:
        path = Path(place)
    else:
        from platformdirs import user_config_path

        path = user_config_path("fusetui") / FILE
    try:
        table = table_in(text_of(path), path)
    except FileNotFoundError:
        if place:
            raise CommandError(f"{path} does not exist: {PLACE} names it.") from None
        return Settings()
    return _checked(table, path)


def _checked(table: Mapping[str, object], path: Path) -> Settings:
    names = Settings.__struct_fields__
    for name, value in table.items():
        if name not in names:
            raise CommandError(f"{path}: there is no setting {name!r}; {', '.join(names)} are.")
        try:
            msgspec.convert({name: value}, Settings)
        except msgspec.ValidationError:
            wanted = "auto, dark or light" if name == "theme" else "true or false"
            raise CommandError(f"{path}: {name} is {value!r}; it can be {wanted}.") from None
    return msgspec.convert(table, Settings)


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
