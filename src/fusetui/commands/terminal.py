"""Detects the capabilities of the terminal: colors, background and characters. All of
it is known before Textual is imported, which reads its environment then. And what a
person has chosen for every run, in config.toml in the user's config folder:

    theme = "light"
    ascii = false
    mouse = false

Options of the command line and variables come first.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import msgspec

from fusetui.commands.errors import CommandError
from fusetui.text.patterns import lazy_pattern
from fusetui.text.toml import read_text, table_in

TRUECOLOR = {
    "alacritty",
    "contour",
    "direct",
    "foot",
    "ghostty",
    "kitty",
    "rio",
    "wezterm",
}
"""Parts of TERM of terminals that have true color, all of them by their
documentation."""
COLOR_SYSTEM = "TEXTUAL_COLOR_SYSTEM"
COLOR_SYSTEMS = {"auto", "standard", "256", "truecolor", "windows"}
"""What that variable may hold, as Rich names them (rich.console.COLOR_SYSTEMS)."""
COLOR_NUMBER = lazy_pattern(r"[0-9]{1,3}")
LIGHT_COLORS = {7, *range(9, 16)}  # of the 16 of a terminal
MANY_COLORS = {"screen", "tmux", "256color"}  # those that have 256
ANSWER_SECONDS = 1.0
"""A terminal that answers does so within one round trip."""
QUESTION = b"\x1b]11;?\x1b\\\x1b[c"
"""The color of the background (xterm's ctlseqs, OSC 11), then what terminal it is
(DA1). Terminals answer in order, and all of them the second question, so none that
knows no OSC 11 is waited for."""
COLOR = lazy_pattern(rb"\x1b\]11;rgba?:([0-9a-fA-F]+)/([0-9a-fA-F]+)/([0-9a-fA-F]+)")
"""The answer to the first question: red, green and blue."""
LAST_ANSWER = lazy_pattern(rb"\x1b\[\?[0-9;]*c")
ANSWERS = lazy_pattern(rb"\x1b\]11;[^\x07\x1b]*(?:\x07|\x1b\\)|" + LAST_ANSWER.pattern)
"""Whatever of the input is an answer: people may type at the same time."""


def has_terminal() -> bool:
    """Return whether standard input, output and error are all terminals. The app reads
    keys from the first and draws on the last. A stream that was closed at the start is
    None."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams)


def prepare(environment: MutableMapping[str, str]) -> None:
    """Set the variables that Textual reads, so that it uses all colors of the terminal.
    COLUMNS and LINES are removed, because the terminal knows its size."""
    for name in ("COLUMNS", "LINES"):
        environment.pop(name, None)
    if environment.get(COLOR_SYSTEM) not in COLOR_SYSTEMS:
        # Textual would fail with what it does not know
        environment.pop(COLOR_SYSTEM, None)
    by_name = detect_color_system(environment)
    if by_name and COLOR_SYSTEM not in environment:
        environment[COLOR_SYSTEM] = by_name


def detect_color_system(environment: Mapping[str, str]) -> str:
    """Return the color system of the terminal by its name, or "" if Rich detects it
    correctly. SSH does not forward COLORTERM, so TERM is used."""
    if environment.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return ""
    parts = set(environment.get("TERM", "").lower().split("-"))
    if parts & TRUECOLOR:
        return "truecolor"
    return "256" if parts & MANY_COLORS else ""


def needs_ascii(environment: Mapping[str, str], encoding: str | None) -> bool:
    """Return whether only ASCII characters may be drawn, because the locale is C or
    POSIX or has an encoding other than UTF-8.

    C.UTF-8 in LC_CTYPE does not count, since Python sets it itself in place of C (PEP
    538). Without any locale, as in containers, terminals have UTF-8 anyway.
    """
    if encoding and encoding.lower().replace("-", "") != "utf8":
        return True
    locale_name = environment.get("LC_ALL") or environment.get("LC_CTYPE") or ""
    language = environment.get("LANG", "")
    if not locale_name or (locale_name == "C.UTF-8" and not environment.get("LC_ALL")):
        locale_name = language or locale_name
    name, _, charset = locale_name.partition("@")[0].partition(".")
    if name in ("C", "POSIX") and not charset:
        return True
    return bool(charset) and charset.lower().replace("-", "") != "utf8"


class Background(NamedTuple):
    """Whether it is light; and what a person typed while the terminal was asked."""

    is_light: bool
    typed: str = ""


def background(theme: str, environment: Mapping[str, str]) -> Background:
    """Return whether the background of the terminal is light, and what was typed
    meanwhile. It is as `theme` says, else as COLORFGBG says, else the terminal is
    asked. Dark if none of them tells."""
    if theme in ("dark", "light"):
        return Background(theme == "light")
    is_light = parse_colorfgbg(environment.get(COLORS, ""))
    if is_light is not None:
        return Background(is_light)
    if not may_ask(environment):
        return Background(is_light=False)
    terminal_answer = ask(ANSWER_SECONDS)
    typed = ANSWERS.sub(b"", terminal_answer).decode(errors="ignore")
    return Background(is_light_color(terminal_answer), typed)


def parse_colorfgbg(value: str) -> bool | None:
    """Return whether COLORFGBG, such as `15;0`, has a light background: its last part
    is one of 16 colors. None for any other value."""
    last = value.rpartition(";")[2]
    if not COLOR_NUMBER.fullmatch(last):
        return None
    return int(last) in LIGHT_COLORS


def may_ask(environment: Mapping[str, str]) -> bool:
    """Return whether the terminal can be asked for its colors. Some terminals never
    answer, and some show the question as text."""
    term = environment.get("TERM", "")
    is_screen = term.startswith("screen") and "TMUX" not in environment
    if term in ("", "dumb", "linux") or is_screen:
        return False
    return sys.stdin.isatty() and sys.platform != "win32"


def is_light_color(answer: bytes) -> bool:
    """Return whether the color in an answer to OSC 11 is nearer to white than to black,
    by its luma (Rec. 709). False without a color."""
    color = COLOR.search(answer)
    if color is None:
        return False
    red = _parse_intensity(color[1])
    green = _parse_intensity(color[2])
    blue = _parse_intensity(color[3])
    # the weights of Rec. 709 for red, green and blue
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.5


def _parse_intensity(digits: bytes) -> float:
    """Return hexadecimal digits of a color as a number from 0 to 1. Terminals write one
    to four digits."""
    return int(digits, 16) / (16.0 ** len(digits) - 1)


def ask(seconds: float) -> bytes:
    """Return what the terminal answers to QUESTION within `seconds`, or b"" if it
    cannot be asked. Nothing is echoed, and the terminal is restored afterwards."""
    import termios
    import tty

    answer = b""
    with suppress(OSError, termios.error):
        handle = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        try:
            before = termios.tcgetattr(handle)
            try:
                tty.setraw(handle, termios.TCSANOW)
                os.write(handle, QUESTION)
                answer = _read_answers(handle, time.monotonic() + seconds)
            finally:
                # nothing to restore where it is gone
                with suppress(OSError, termios.error):
                    termios.tcsetattr(handle, termios.TCSANOW, before)
        finally:
            os.close(handle)
    return answer


def _read_answers(handle: int, end: float) -> bytes:
    """Return what can be read from the terminal until the last answer is complete, or
    until the time `end` (of time.monotonic)."""
    answer = b""
    while not LAST_ANSWER.search(answer):
        seconds_left = end - time.monotonic()
        if seconds_left <= 0:
            break
        if select.select([handle], [], [], seconds_left)[0]:
            read = os.read(handle, 1024)
            if not read:
                break
            answer += read
    return answer


FILE_VARIABLE = "FUSETUI_CONFIG"
"""The environment variable that names another file, or is `off`."""

FILE = "config.toml"
COLORS = "COLORFGBG"
Theme = Literal["auto", "dark", "light"]
THEMES: tuple[str, ...] = get_args(Theme)


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every choice has a default."""

    theme: Theme = "auto"
    ascii: bool = False
    mouse: bool = True


def read_user_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of this user, from config.toml and FUSETUI_THEME. Raises
    WrongFileError if the file cannot be used, and CommandError for a wrong setting."""
    settings = _read_settings_file(environment.get(FILE_VARIABLE, ""))
    theme = environment.get("FUSETUI_THEME") or settings.theme
    if theme not in THEMES:
        raise CommandError(
            f"FUSETUI_THEME is {theme!r}; it can be auto, dark or light."
        )
    return msgspec.structs.replace(settings, theme=theme)


def _read_settings_file(name: str) -> Settings:
    """Return the settings in the file of this name; "" is the user's own config.toml.
    The defaults are returned for "off", and if the user has no file. Raises
    WrongFileError and CommandError."""
    if name == "off":
        return Settings()
    if name:
        path = Path(name)
    else:
        from platformdirs import user_config_path

        path = user_config_path("fusetui") / FILE
    try:
        table = table_in(read_text(path), path)
    except FileNotFoundError:
        if not name:
            return Settings()
        raise CommandError(
            f"{path}, named by {FILE_VARIABLE}, does not exist."
        ) from None
    known_settings = Settings.__struct_fields__
    for setting, value in table.items():
        if setting not in known_settings:
            raise CommandError(
                f"{path}: unknown setting {setting!r}; use {', '.join(known_settings)}."
            )
        try:
            msgspec.convert({setting: value}, Settings)
        except msgspec.ValidationError:
            choices = "auto, dark or light" if setting == "theme" else "true or false"
            raise CommandError(
                f"{path}: {setting} is {value!r}; it can be {choices}."
            ) from None
    return msgspec.convert(table, Settings)


def report_ignored_colors(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence if the value of COLORFGBG cannot be understood. The value
    `default` of rxvt is fine, as it means a color beside the 16."""
    text = environment.get(COLORS, "")
    last = text.rpartition(";")[2]
    if text and last != "default" and not COLOR_NUMBER.fullmatch(last):
        yield (
            f"{COLORS} is {text!r} and is ignored: set it to the colors of text and "
            "background, as in 15;0, or use --theme light or dark."
        )
