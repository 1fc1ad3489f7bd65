"""Settings in a text (`HF_TOKEN=...`, `--password ...`, `"user": "ada"`), and command lines."""

from __future__ import annotations

import re

from fusetui.trace.scrub.keys import KNOWN_VARIABLE, TELLING, Kind, kind_of
from fusetui.trace.scrub.names import Names
from fusetui.trace.scrub.placeholders import Placeholders, is_placeholder
from fusetui.trace.scrub.secrets import BEARER, PRIVATE_KEY, TOKEN, is_strong, is_trivial

_PRIVATE_KEY, _TOKEN, _BEARER = map(re.compile, (PRIVATE_KEY, TOKEN, BEARER))
_NAME = r"[A-Za-z_][\w.-]{1,80}+"
_OF_VALUE = r"[^\s\"'\\,;&|<>()\[\]{}]"
SETTING = re.compile(
    rf"""
    (?<![\w.-])
    (?: --?(?P<option>{_NAME})(?: = | \s{{1,2}}+)
      | (?P<name>{_NAME})[\\"']{{0,4}}+\s{{0,2}}+(?P<sign>[=:])(?![=:])\s{{0,2}}+
    )
    (?P<quote>[\\"']{{0,4}}+)
    (?={_OF_VALUE})
    """,
    re.VERBOSE,
)
VALUE = re.compile(rf"{_OF_VALUE}++")
LONGEST = 1 << 12  # characters up to the quote that closes a value
DUMP = re.compile(r"(?<=[\r\n])(?:export )?[A-Za-z_]\w{0,80}=([^\r\n]++)")
LEAST = 3  # minimum number of lines NAME=value of a text that is an environment

PROGRAM = re.compile(
    r"(?<![\w-])(?P<program>python[\d.]{0,6}|ipython|pypy\d?|torchrun|accelerate|deepspeed|srun|sbatch"
    r"|salloc|mpirun|mpiexec|bash|zsh|sudo|ssh|scp|rsync|docker|podman|kubectl|jupyter(?:-\w{1,20})?"
    r"|nsys|ncu|curl|wget|[\w.-]{1,100}\.(?:py|sh))(?P<blank>[ \t]{1,4}+)(?P<rest>[^\n]++)"
)
ARGUMENTS = re.compile(r"(?:^|\s)--?[A-Za-z]|\.(?:py|sh|ipynb)\b|\w=|://|[~/]\w")


def scrub_commands(text: str, given: Placeholders) -> str:
    """A text without the arguments of command lines."""

    def cut(found: re.Match[str]) -> str:
        rest = found["rest"]
        script = found["program"].endswith((".py", ".sh"))
        if is_placeholder(rest) or not (rest[0] == "-" if script else ARGUMENTS.search(rest)):
            return found[0]
        return f"{found['program']}{found['blank']}{given.give('command', rest)}"

    return PROGRAM.sub(cut, text) if " " in text or "\t" in text else text


def scrub_tokens(text: str, names: Names) -> str:
    """A text without private keys and tokens of known forms."""
    text = _PRIVATE_KEY.sub(lambda m: names.secret(m[0]), text)
    text = _TOKEN.sub(lambda m: names.secret(m[0]), text)
    return _BEARER.sub(lambda m: f"{m[0][: -len(m[1])]}{names.secret(m[1])}", text)


def scrub_settings(text: str, names: Names) -> str:
    """A text without the values of variables, secrets, users and hosts."""
    if "=" not in text and ":" not in text and "--" not in text:
        return text
    kept: list[str] = []
    done = at = 0
    everything = _is_environment(text)
    while found := SETTING.search(text, at):
        at = found.end()
        variable = everything and _name(found).isupper()
        if not (variable or _may_be_private(found)):
            continue
        end = _end(text, found)
        placeholder = _hidden(found, text[at:end], variable, names)
        if placeholder:
            kept += [text[done:at], placeholder]
            done = at = end
    text = "".join([*kept, text[done:]]) if kept else text
    return _without_lines(text, names)


def _without_lines(text: str, names: Names) -> str:
    """A text without the values of an environment, one variable per line."""
    if "\n" not in text or len(DUMP.findall(f"\n{text}")) < LEAST:
        return text
    found = DUMP.sub(lambda m: m[0][: -len(m[1])] + _line(m[1], names), f"\n{text}")
    return found[1:]


def _line(value: str, names: Names) -> str:
    return value if is_placeholder(value) else names.secret(value)


def _name(found: re.Match[str]) -> str:
    return found["option"] or found["name"]


def _is_environment(text: str) -> bool:
    """Whether a text contains at least two of the variables that every environment has."""
    if "PATH" not in text and "HOME" not in text and "USER" not in text:
        return False
    return len(TELLING.intersection(map(_name, SETTING.finditer(text)))) > 1


def _may_be_private(found: re.Match[str]) -> bool:
    name = _name(found)
    if kind_of(name) in (Kind.SECRET, Kind.USER, Kind.HOST):
        return True
    return found["sign"] == "=" and KNOWN_VARIABLE.fullmatch(name) is not None


def _end(text: str, found: re.Match[str]) -> int:
    """Where a value ends: before the quote that closes it, or what cannot be part of it."""
    begin, quote = found.end(), found["quote"]
    close = text.find(quote, begin, begin + LONGEST) if quote else -1
    if close > begin:
        return close
    value = VALUE.match(text, begin)
    return value.end() if value else begin


def _hidden(found: re.Match[str], value: str, variable: bool, names: Names) -> str:
    """The placeholder for the value of a setting; "" if it is kept."""
    name = _name(found)
    certain = found["sign"] != ":" or bool(found["quote"])
    kind = kind_of(name)
    if is_placeholder(value):
        return ""
    if kind is Kind.SECRET and not variable:
        return names.secret(value) if _is_secret_value(name, value, certain) else ""
    if kind in (Kind.USER, Kind.HOST):
        learn = names.user if kind is Kind.USER else names.host
        return learn(value) if certain or variable else ""
    return names.secret(value)


def _is_secret_value(name: str, value: str, certain: bool) -> bool:
    if is_trivial(value):
        return False
    if is_strong(name):
        return True
    if certain:
        return not value.isdigit() or len(value) > 8
    return len(value) >= 8 and any(char.isdigit() for char in value) and not value.isdigit()
