"""Secrets that a name stands before: `HF_TOKEN=...`, `--password ...`, `"api_key":
"..."`; tokens of known forms, whatever stands before them; and the warning of what
looks like a secret in a trace, without its value.

The warning examines only what occurs once per trace: the keys around the events, and
the names of events and lanes. That takes no longer than searching them for a few words.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from fusetui.text.patterns import compiled
from fusetui.trace.model.columns import Trace
from fusetui.trace.scrub.secrets import (
    KINDS,
    Secrecy,
    hides,
    is_placeholder,
    is_random,
    is_secret,
    is_trivial,
    rows_of,
    secrecy,
)

ALPHABETS = {"A": "A-Za-z0-9", "B": "A-Za-z0-9+/=_-", "D": r"\w.=-", "H": "0-9a-fA-F",
             "L": "a-z0-9", "U": "A-Z0-9", "W": r"\w-"}  # fmt: skip

BEGIN = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[abfnrtv0])|(?<=\\u[0-9a-fA-F]{4})|(?<=\\x[0-9a-fA-F]{2})"
    r"|(?<=%[0-9a-fA-F]{2})|(?<=\[[0-9]m)|(?<=\[[0-9]{2}m))"
)
"""Where a token may begin: at a word, also after an escape of JSON, of a URL or of a
terminal."""

ISSUED, FORMS = "issued_tokens.txt", "token_forms.txt"
"""A token a line. Those that begin in a way of their own: who issues it, how it begins,
and what follows, an alphabet and the fewest characters of it, as the issuers document
them and as scanners of repositories know them. Others have a form: what it is, what is
part of every text of this form (in lower case), and a pattern whose last group, or all
of it, is the secret; none if that is empty."""


def tokens_in(text: str) -> Iterator[tuple[int, int, str]]:
    """Begin, end and kind of each token of a known form, from left to right; none
    overlaps another. What has no form, such as a password, is known only by the name
    before it."""
    found = [
        (*match.span(match.lastindex or 0), kind)
        for kind, pattern in _patterns(text)
        for match in pattern.finditer(text)
        if not match[0][0].isalnum() or compiled(BEGIN).match(text, match.start())
    ]
    done = -1
    for begin, end, kind in sorted(found, key=lambda token: (token[0], -token[1])):
        if done <= begin < end and not is_trivial(text[begin:end]):
            yield begin, end, kind
            done = end


def _patterns(text: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    """The few patterns of which at least the beginning occurs in the text."""
    for kind, prefix, pattern in _issued():
        if prefix in text:
            yield kind, compiled(pattern)
    lower = text.lower()
    for kind, mark, pattern in rows_of(FORMS):
        if mark in lower:
            yield kind, compiled(pattern)


@cache
def _issued() -> list[tuple[str, str, str]]:
    """Kind, prefix and pattern of tokens that begin in a way of their own."""
    rows = []
    for kind, prefixes, body in rows_of(ISSUED):
        alphabet = ALPHABETS[body[0]]
        following = rf"(?=[{alphabet}]{{0,60}}[\dA-Z])[{alphabet}]{{{body[1:]},}}+"
        rows += [
            (kind, prefix, re.escape(prefix) + following) for prefix in prefixes.split()
        ]
    return rows


# Begin and end of a secret in a text, and what it is called
Place = tuple[int, int, str]

NAME = r"[A-Za-z_][\w.-]{1,80}+"
SIGN = r"=(?<=[\w\\\"'\]\s:!=]=)|:(?<=[\w\\\"'\]\s]:)(?!:)|-(?=-[A-Za-z])"
"""Part of every setting, and of few names of kernels and frames."""

SETTING = rf"""(?x)
    (?<![A-Za-lo-qsu-z0-9_.-]) # soon known of most places; then more exactly
    (?:(?<![\w.-])|(?<=\[[0-9]m)|(?<=\[[0-9]{{2}}m)|(?<=\\[nrt](?=-)))
    (?: --?(?P<option>{NAME})(?: = | \s{{1,2}}+)
      | (?P<name>{NAME})[\\"'\[\]]{{0,5}}+\s{{0,2}}+(?P<sign>:=|!?={{1,3}}>?|:(?!:))\s{{0,2}}+
    )
    (?P<quote>[\\"'`]{{0,4}}+)
    (?=[^\s"'`])
    """
BARE = r"""(?x)
    (?P<name> (?:pass(?:word|wd|phrase|code)|(?:api|access|secret|auth|private)[ _-]?(?:key|token)
      | key|token|pass|pwd|secret|credentials?) )
    (?: \s{1,4}+(?:is\s{1,4}+)?+ | \s{0,2}+:=?\s{0,4}+ )
    (?P<quote>["'`]?+) (?P<value>[^\s"'`<]{4,400}+)
    """
"""`password hunter2`, `machine x login y password z`, `api-key X`."""

COMMAND_OPTION = r"""(?x)
    (?<![\w.-])
    (?: (?P<name>sshpass) (?:\s{1,4}+-[ev])? \s{1,4}+-p\s{0,4}+
      | mysql(?:dump|admin)?+
        (?:\s{1,4}+-(?!p)[^\s]{1,60}+ (?:\s{1,4}+[^\s-][^\s]{0,60}+)?+){0,9}+
        \s{1,4}+-p
    )
    (?: (?P<quote>["'`])(?P<quoted>[^"'`]{1,400}) | (?P<plain>[^\s"'`;|&]{1,400}+) )
    """
"""A password as an option of one letter: `sshpass -p X`, `mysql -u ada -pX`."""
COMMAND_PASSWORD = "password"  # what such a password is called in the warning

COMPARED = (
    r"""(?P<quote>["'`])(?P<value>[^\s"'`<]{4,200})(?P=quote)\s{0,2}[!=]{2,3}\s{0,2}"""
    rf"(?P<name>{NAME})"
)
WORDS = ("pass", "key", "token", "pwd", "secret", "credential")
PLAIN = r"[^\s\"'`,;<\x00-\x1f]"
ANGLE = rf"<(?!(?:{'|'.join(KINDS)})[1-9])"
CLOSING = ")]}.:\\"
LONGEST = 1 << 12  # characters up to the quote that closes a value
PROBE = 1000  # characters of a value by which is known whether it is a secret
VALUE = rf"{PLAIN}{{0,{PROBE}}}+(?:{ANGLE}{PLAIN}{{0,{PROBE}}}+){{0,9}}+"
REST = rf"{PLAIN}*+(?:{ANGLE}{PLAIN}*+)*+"
BETWEEN = "\n" * 5  # two texts: no secret goes on in the next
OF_CODE = (
    "aten::",
    "void ",
    "_Z",
    "<built-in",
    "nn.Module",
    "torch/",
    "cuda",
    "hip",
    "triton_",
)
"""How most names begin. Such names contain no tokens, and they make up most of the
text."""


def named_in(text: str) -> Iterator[Place]:
    """Those in a text, from left to right; none overlaps another."""
    done = -1
    for place in sorted({*_settings(text), *_bare(text), *_command_options(text)}):
        if place[0] >= done:
            yield place
            done = place[1]


def end_of(text: str, found: re.Match[str], value: str) -> int:
    """Where the value of a setting ends: before the quote that closes it, or behind the
    pattern `value`."""
    begin, quote = found.end(), found["quote"]
    close = text.find(quote, begin, begin + LONGEST) if quote else -1
    if close > begin:
        return close
    match = compiled(value).match(text, begin)
    return match.end() if match else begin


def may_hold_setting(text: str) -> bool:
    return compiled(SIGN).search(text) is not None


def name_of(found: re.Match[str]) -> str:
    """The name of a setting, without the letter of an escape before it."""
    name: str = found["option"] or found["name"]
    return name[name[0] in "nrt" and found.string.endswith("\\", 0, found.start()) :]


def _settings(text: str) -> Iterator[Place]:
    at = 0
    if not may_hold_setting(text):
        return
    while found := compiled(SETTING).search(text, at):
        at, name = found.end(), name_of(found)
        if secrecy(name) is Secrecy.NONE:
            continue
        end = end_of(text, found, VALUE)
        cut = end >= at + PROBE
        value = text[at:end]
        if secrecy(name) is not Secrecy.STRONG:
            value = value.partition("\\")[0]  # an escape ends it
        value = value.rstrip(CLOSING)
        if _is_hidden(name, value, found["sign"] != ":" or found["quote"] != ""):
            rest = compiled(REST).match(text, end) if cut else None
            end = rest.end() if rest else at + len(value)
            yield at, end, name
            at = end


def _is_hidden(name: str, value: str, certain: bool) -> bool:
    if is_placeholder(value) or not hides(name, value):
        return False
    if secrecy(name) is not Secrecy.USUAL:
        return True
    if certain:
        return not value.isdigit() or len(value) > 8
    return (
        len(value) >= 8
        and any(char.isdigit() for char in value)
        and not value.isdigit()
    )


def _bare(text: str) -> Iterator[Place]:
    lower = (
        text.lower()
        if text.isascii()
        else re.sub("[A-Z]", lambda m: m[0].lower(), text)
    )
    if not any(word in lower for word in WORDS):
        return
    for found in compiled(BARE).finditer(lower):
        begin, end = found.span("value")
        before = lower[found.start() - 1 : found.start()]
        if before.isalpha() and not found["name"].startswith("passw"):
            continue  # the end of another word
        if not found["quote"]:
            end = begin + len(lower[begin:end].rstrip(CLOSING + ",;"))
        if _is_bare(found["name"], text[begin:end], found["quote"] != ""):
            yield begin, end, found["name"]
    if "==" in text or "!=" in text:
        for found in compiled(COMPARED).finditer(text):
            if secrecy(found["name"]) >= Secrecy.USUAL and not is_trivial(
                found["value"]
            ):
                yield *found.span("value"), found["name"]


def _command_options(text: str) -> Iterator[Place]:
    if "sshpass" not in text and "mysql" not in text:
        return
    for match in compiled(COMMAND_OPTION).finditer(text):
        begin, end = match.span("quoted" if match["quote"] else "plain")
        if not is_trivial(text[begin:end]) and not is_placeholder(text[begin:end]):
            yield begin, end, COMMAND_PASSWORD


def _is_bare(name: str, value: str, quoted: bool) -> bool:
    """Whether what follows a name after a blank is its value, not the rest of a
    sentence."""
    if is_trivial(value):
        return False
    if name in ("key", "token", "pass", "pwd", "secret", "credential", "credentials"):
        return is_random(value)
    mixed = any(char.isdigit() for char in value) and any(
        char.isalpha() for char in value
    )
    strong = name.startswith("pass")
    return (quoted and strong) or (mixed and len(value) >= (6 if strong else 8))


def secrets_of(trace: Trace) -> tuple[str, ...]:
    """What looks like a secret in the keys and names of a trace: what it is called, not
    its value."""
    lanes = (track.label for track in trace.tracks)
    report = trace.report
    texts = (*trace.names, *lanes, *report.process_names, *report.damaged_keys)
    return secrets_in(trace.keys, texts)


def secrets_in(keys: Mapping[str, Any], names: Iterable[str]) -> tuple[str, ...]:
    """Names of keys whose values look like secrets, and kinds of tokens found
    elsewhere.

    `keys` are those around the events, `names` any texts. Each is listed once.
    """
    texts = [name for name in names if not name.startswith(OF_CODE)]
    found = [*_of_keys(keys, texts)]
    text = BETWEEN.join(texts)
    found += (kind for _, _, kind in tokens_in(text))
    found += (
        name for begin, end, name in named_in(text) if is_secret(name, text[begin:end])
    )
    return tuple(dict.fromkeys(found))


def _of_keys(keys: Mapping[str, Any], texts: list[str]) -> Iterator[str]:
    """Keys whose values look like secrets; adds all others that are texts to
    `texts`."""
    waiting = deque[tuple[str, Any]](keys.items())
    while waiting:
        key, value = waiting.popleft()
        if is_secret(key, value):
            yield key
        elif isinstance(value, str):
            texts.append(value)
        elif isinstance(value, Mapping):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += ((key, item) for item in value)
