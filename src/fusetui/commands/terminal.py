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
from fusetui.text.toml import table_in, text_of

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
    """Whether all are terminals: the app reads from standard input, draws on standard
    error. A stream that was closed before the start is None."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams)


def prepare(environment: MutableMapping[str, str]) -> None:
    """Tells Textual how many colors the terminal has where Rich would think that it has
    few, and nothing of sizes: the terminal knows its own."""
    for name in ("COLUMNS", "LINES"):
        environment.pop(name, None)
    if environment.get(COLOR_SYSTEM) not in COLOR_SYSTEMS:
        # Textual would fail with what it does not know
        environment.pop(COLOR_SYSTEM, None)
    by_name = color_system(environment)
    if by_name and COLOR_SYSTEM not in environment:
        environment[COLOR_SYSTEM] = by_name


def color_system(environment: Mapping[str, str]) -> str:
    """By the name of the terminal, as SSH does not forward COLORTERM; "" where Rich is
    right."""
    if environment.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return ""
    parts = set(environment.get("TERM", "").lower().split("-"))
    if parts & TRUECOLOR:
        return "truecolor"
    return "256" if parts & MANY_COLORS else ""


def needs_ascii(environment: Mapping[str, str], encoding: str | None) -> bool:
    """Is the locale C (or POSIX), or one of an encoding other than UTF-8. Python
    replaces the C locale of LANG by C.UTF-8 in LC_CTYPE (PEP 538): that says nothing
    about the terminal. Where no locale is set at all, as in containers, terminals have
    UTF-8 anyway."""
    if encoding and encoding.lower().replace("-", "") != "utf8":
        return True
    chosen = environment.get("LC_ALL") or environment.get("LC_CTYPE") or ""
    language = environment.get("LANG", "")
    if not chosen or (chosen == "C.UTF-8" and not environment.get("LC_ALL")):
        chosen = language or chosen
    name, _, charset = chosen.partition("@")[0].partition(".")
    if name in ("C", "POSIX") and not charset:
        return True
    return bool(charset) and charset.lower().replace("-", "") != "utf8"


class Background(NamedTuple):
    """Whether it is light; and what a person typed while the terminal was asked."""

    is_light: bool
    typed: str = ""


def background(theme: str, environment: Mapping[str, str]) -> Background:
    """As the user says, else COLORFGBG, else the terminal; dark if none of them says
    it."""
    if theme in ("dark", "light"):
        return Background(theme == "light")
    is_light = light_by_variable(environment.get(COLORS, ""))
    if is_light is not None:
        return Background(is_light)
    if not may_ask(environment):
        return Background(is_light=False)
    answer = ask(ANSWER_SECONDS)
    typed = ANSWERS.sub(b"", answer).decode(errors="ignore")
    return Background(is_light_color(answer), typed)


def light_by_variable(value: str) -> bool | None:
    """`15;0`, as rxvt and Konsole set it, are the text's and the background's of 16
    colors; None for anything else."""
    last = value.rpartition(";")[2]
    if not COLOR_NUMBER.fullmatch(last):
        return None
    return int(last) in LIGHT_COLORS


def may_ask(environment: Mapping[str, str]) -> bool:
    """Is it a terminal that answers questions and shows none of them."""
    term = environment.get("TERM", "")
    is_screen = term.startswith("screen") and "TMUX" not in environment
    if term in ("", "dumb", "linux") or is_screen:
        return False
    return sys.stdin.isatty() and sys.platform != "win32"


def is_light_color(answer: bytes) -> bool:
    """Of an answer to OSC 11: is the color nearer to white than to black, by its Rec.
    709 luma."""
    color = COLOR.search(answer)
    if color is None:
        return False
    red = _intensity(color[1])
    green = _intensity(color[2])
    blue = _intensity(color[3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.5


def _intensity(digits: bytes) -> float:
    """Hexadecimal digits of a color, of which terminals give one to four, as a number
    from 0 to 1."""
    return int(digits, 16) / (16.0 ** len(digits) - 1)


def ask(seconds: float) -> bytes:
    """What the terminal answers to QUESTION within this time; b"" where it cannot be
    asked. Without an echo, and with the terminal as it was afterwards."""
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
    """What can be read until the last answer is there, or until this time
    (time.monotonic)."""
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


def user_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """The choices of this user. Raises WrongFileError, and CommandError for a setting
    or a variable that is wrong."""
    settings = _settings_in_file(environment.get(FILE_VARIABLE, ""))
    theme = environment.get("FUSETUI_THEME") or settings.theme
    if theme not in THEMES:
        raise CommandError(
            f"FUSETUI_THEME is {theme!r}; it can be auto, dark or light."
        )
    return msgspec.structs.replace(settings, theme=theme)


def _settings_in_file(name: str) -> Settings:
    """The settings in the file of this name, or in the user's own for ""; the defaults
    for `off`, and where the user has no file. Raises WrongFileError and
    CommandError."""
    if name == "off":
        return Settings()
    if name:
        path = Path(name)
    else:
        from platformdirs import user_config_path

        path = user_config_path("fusetui") / FILE
    try:
        table = table_in(text_of(path), path)
    except FileNotFoundError:
        if not name:
            return Settings()
        raise CommandError(
            f"{path}, named by {FILE_VARIABLE}, does not exist."
        ) from None
    known = Settings.__struct_fields__
    for setting, value in table.items():
        if setting not in known:
            raise CommandError(
                f"{path}: unknown setting {setting!r}; use {', '.join(known)}."
            )
        try:
            msgspec.convert({setting: value}, Settings)
        except msgspec.ValidationError:
            choices = "auto, dark or light" if setting == "theme" else "true or false"
            raise CommandError(
                f"{path}: {setting} is {value!r}; it can be {choices}."
            ) from None
    return msgspec.convert(table, Settings)


def ignored_colors(environment: Mapping[str, str]) -> Iterator[str]:
    """A sentence if COLORFGBG says nothing; `default`, of rxvt, is a color that is none
    of 16."""
    text = environment.get(COLORS, "")
    last = text.rpartition(";")[2]
    if text and last != "default" and not COLOR_NUMBER.fullmatch(last):
        yield (
            f"{COLORS} is {text!r} and is ignored: it should name the colors of text and "
            "background, as in 15;0; --theme light or dark decides."
        )
