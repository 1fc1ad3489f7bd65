"""Detects secrets after a name (`HF_TOKEN=...`, `--password ...`, `"api_key": "..."`)
and tokens of known forms, and warns about secrets in a trace without printing their
values.

The warning examines only what occurs once per trace: the keys around the events, and
the names of events and lanes. That takes no longer than searching them for a few words.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from fusetui.text.patterns import compiled
from fusetui.trace.model.columns import Trace
from fusetui.trace.scrub.secrets import (
    KINDS,
    Secrecy,
    hides_value,
    is_placeholder,
    is_random,
    is_secret,
    is_trivial,
    read_rows,
    secrecy,
)

ALPHABETS = {
    "A": "A-Za-z0-9",
    "B": "A-Za-z0-9+/=_-",
    "D": r"\w.=-",
    "H": "0-9a-fA-F",
    "L": "a-z0-9",
    "U": "A-Z0-9",
    "W": r"\w-",
}
"""By the letter that names them in ISSUED."""

BEGIN = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[abfnrtv0])|(?<=\\u[0-9a-fA-F]{4})|(?<=\\x[0-9a-fA-F]{2})"
    r"|(?<=%[0-9a-fA-F]{2})|(?<=\[[0-9]m)|(?<=\[[0-9]{2}m))"
)
"""Where a token may begin: at a word, also after an escape of JSON, of a URL or of a
terminal."""

ISSUED = "issued_tokens.txt"
FORMS = "token_forms.txt"
"""A token a line. Those that begin in a way of their own: who issues it, how it begins,
and what follows, an alphabet and the fewest characters of it, as the issuers document
them and as scanners of repositories know them. Others have a form: what it is, what is
part of every text of this form (in lower case), and a pattern whose last group, or all
of it, is the secret; none if that is empty."""


class SecretSpan(NamedTuple):
    """The characters [begin, end) of a text, which are a secret, and what it is called:
    the kind of the token, or the name before it."""

    begin: int
    end: int
    name: str


def find_tokens(text: str) -> Iterator[SecretSpan]:
    """Yield each token of a known form in a text, such as the key of a cloud service,
    from left to right. None overlaps another.

    A secret without a form, such as a password, is known only by the name before it.
    """
    tokens: list[SecretSpan] = []
    for kind, pattern in _select_token_patterns(text):
        for match in pattern.finditer(text):
            is_word = text[match.start()].isalnum()
            if is_word and not _may_begin_at(text, match.start()):
                continue
            # a pattern with a group has the token in it, and what stands around outside
            token_group = match.lastindex or 0
            begin, end = match.span(token_group)
            tokens.append(SecretSpan(begin, end, kind))
    end_of_last = -1
    # where several begin, the longest counts
    for token in sorted(tokens, key=lambda token: (token.begin, -token.end)):
        if token.begin < end_of_last or token.begin == token.end:
            continue
        if is_trivial(text[token.begin : token.end]):
            continue
        yield token
        end_of_last = token.end


def _may_begin_at(text: str, place: int) -> bool:
    """Whether a token may begin at a place of the text: at the begin of a word, or
    after an escape."""
    return compiled(BEGIN).match(text, place) is not None


def _select_token_patterns(text: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield kind and pattern of those tokens of which at least the beginning occurs in
    the text. Searching for a beginning is much faster than matching a pattern."""
    for kind, prefix, pattern in _read_issued_tokens():
        if prefix in text:
            yield kind, compiled(pattern)
    lower = text.lower()
    for kind, mark, pattern in read_rows(FORMS):
        if mark in lower:
            yield kind, compiled(pattern)


@cache
def _read_issued_tokens() -> list[tuple[str, str, str]]:
    """Kind, prefix and pattern of all tokens that begin with a prefix of their own,
    read from ISSUED."""
    rows = []
    for kind, prefixes, body in read_rows(ISSUED):
        alphabet = ALPHABETS[body[0]]
        min_chars = body[1:]
        # a digit or a capital letter is in it, as in no word
        following = rf"(?=[{alphabet}]{{0,60}}[\dA-Z])[{alphabet}]{{{min_chars},}}+"
        for prefix in prefixes.split():
            rows.append((kind, prefix, re.escape(prefix) + following))
    return rows


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
"""One of these is in every name of BARE."""
NAMES_IN_SENTENCES = frozenset(
    ("key", "token", "pass", "pwd", "secret", "credential", "credentials")
)
"""Names that are also followed by something else: `key value`."""
PLAIN = r"[^\s\"'`,;<\x00-\x1f]"
ANGLE = rf"<(?!(?:{'|'.join(KINDS)})[1-9])"
CLOSING = ")]}.:\\"
ESCAPE = r"\\[nrtfbu\"'\\/]"
"""What ends a value within a text that is quoted once more, as in `HF_TOKEN=abc\\nPWD=`.
Any other backslash belongs to the value."""
MAX_QUOTED_CHARS = 1 << 12  # up to the quote that closes a value
PROBE_CHARS = 1000  # of a value, by which is known whether it is a secret
VALUE = rf"{PLAIN}{{0,{PROBE_CHARS}}}+(?:{ANGLE}{PLAIN}{{0,{PROBE_CHARS}}}+){{0,9}}+"
REST = rf"{PLAIN}*+(?:{ANGLE}{PLAIN}*+)*+"
BETWEEN_TEXTS = "\n" * 5  # so that no secret goes on in the next text
BEGINNINGS_OF_CODE = (
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


def find_named_secrets(text: str) -> Iterator[SecretSpan]:
    """Yield each secret that a name stands before, such as HF_TOKEN=..., from left to
    right. None overlaps another."""
    spans = {
        *_find_secret_settings(text),
        *_find_bare_secrets(text),
        *_find_compared_secrets(text),
        *_find_option_passwords(text),
    }
    end_of_last = 0
    for span in sorted(spans):
        if span.begin >= end_of_last:
            yield span
            end_of_last = span.end


def end_of_value(text: str, setting: re.Match[str], value: str) -> int:
    """Where the value of a setting ends in a text: before the quote that closes it, or
    else behind what the pattern `value` matches. `setting` is a match of SETTING."""
    begin = setting.end()
    quote = setting["quote"]
    if quote:
        close = text.find(quote, begin, begin + MAX_QUOTED_CHARS)
        if close > begin:
            return close
    match = compiled(value).match(text, begin)
    return match.end() if match else begin


def may_hold_setting(text: str) -> bool:
    """Whether a setting may be in the text; this is faster than to search for one."""
    return compiled(SIGN).search(text) is not None


def name_of(setting: re.Match[str]) -> str:
    """The name of a matched SETTING. If it follows a backslash, its first letter may
    belong to an escape such as a line feed, and is dropped."""
    name: str = setting["option"] or setting["name"]
    follows_backslash = setting.string.endswith("\\", 0, setting.start())
    if follows_backslash and name[0] in "nrt":
        return name[1:]
    return name


def _find_secret_settings(text: str) -> Iterator[SecretSpan]:
    """Yield the values of settings in a text whose names say that they are secret."""
    if not may_hold_setting(text):
        return
    searched_from = 0
    while setting := compiled(SETTING).search(text, searched_from):
        begin = setting.end()
        searched_from = begin
        name = name_of(setting)
        name_secrecy = secrecy(name)
        if name_secrecy is Secrecy.NONE:
            continue
        probe_end = end_of_value(text, setting, VALUE)
        value = text[begin:probe_end]
        if name_secrecy is not Secrecy.STRONG:  # a password may have such characters
            value = compiled(ESCAPE).split(value, maxsplit=1)[0]
        value = value.rstrip(CLOSING)
        is_quoted = setting["quote"] != ""
        is_certain = is_quoted or setting["sign"] != ":"
        if not _is_value_hidden(name, value, is_certain):
            continue
        end = begin + len(value)
        if probe_end >= begin + PROBE_CHARS:  # the value may go on behind the probe
            rest = compiled(REST).match(text, probe_end)
            end = rest.end() if rest else end
        searched_from = end
        yield SecretSpan(begin, end, name)


def _is_value_hidden(name: str, value: str, is_certain: bool) -> bool:
    """Whether the value of a setting is taken out.

    `is_certain` says that it surely is a value, not just the words after a colon in a
    sentence.
    """
    if is_placeholder(value) or not hides_value(name, value):
        return False
    if secrecy(name) is not Secrecy.USUAL:
        return True
    if is_certain:
        # up to eight digits are a count or a date
        return not value.isdigit() or len(value) > 8
    return len(value) >= 8 and _has_digit(value) and not value.isdigit()


def _has_digit(text: str) -> bool:
    """Whether a text has a digit."""
    return any(char.isdigit() for char in text)


def _ascii_lower(text: str) -> str:
    """A text with A to Z in lower case. Every character keeps its place, unlike with
    str.lower, which may change the length."""
    if text.isascii():
        return text.lower()
    return re.sub("[A-Z]", lambda match: match[0].lower(), text)


def _find_bare_secrets(text: str) -> Iterator[SecretSpan]:
    """Yield what follows words such as `password` after a blank, if it looks like a
    value: `password hunter2`. The pattern is BARE."""
    lower = _ascii_lower(text)
    if not any(word in lower for word in WORDS):
        return
    for match in compiled(BARE).finditer(lower):
        name = match["name"]
        char_before = lower[match.start() - 1 : match.start()]
        is_end_of_word = char_before.isalpha()
        if is_end_of_word and not name.startswith("passw"):
            continue
        begin, end = match.span("value")
        is_quoted = match["quote"] != ""
        if not is_quoted:
            end = begin + len(lower[begin:end].rstrip(CLOSING + ",;"))
        if _is_bare_secret(name, text[begin:end], is_quoted):
            yield SecretSpan(begin, end, name)


def _find_compared_secrets(text: str) -> Iterator[SecretSpan]:
    """Yield the texts in quotes that a secret is compared with: `"hunter2" == password`
    in source code."""
    if "==" not in text and "!=" not in text:
        return
    lower = _ascii_lower(text)
    if not any(word in lower for word in WORDS):
        return
    for match in compiled(COMPARED).finditer(text):
        is_sure = secrecy(match["name"]) >= Secrecy.USUAL
        if is_sure and not is_trivial(match["value"]):
            yield SecretSpan(*match.span("value"), match["name"])


def _find_option_passwords(text: str) -> Iterator[SecretSpan]:
    """Yield the passwords of command lines that are options of one letter, such as
    `sshpass -p X`. The pattern is COMMAND_OPTION."""
    if "sshpass" not in text and "mysql" not in text:
        return
    for match in compiled(COMMAND_OPTION).finditer(text):
        begin, end = match.span("quoted" if match["quote"] else "plain")
        value = text[begin:end]
        if not is_trivial(value) and not is_placeholder(value):
            yield SecretSpan(begin, end, COMMAND_PASSWORD)


def _is_bare_secret(name: str, value: str, is_quoted: bool) -> bool:
    """Whether what follows a name after a blank is its value, not the rest of a
    sentence.

    After a word that is frequent in sentences, such as `key`, only random characters
    count. Otherwise letters are mixed with digits in a value.
    """
    if is_trivial(value):
        return False
    if name in NAMES_IN_SENTENCES:
        return is_random(value)
    is_password = name.startswith("pass")
    if is_quoted and is_password:
        return True
    is_mixed = _has_digit(value) and any(char.isalpha() for char in value)
    min_chars = 6 if is_password else 8
    return is_mixed and len(value) >= min_chars


def secrets_of(trace: Trace) -> tuple[str, ...]:
    """What looks like a secret in the keys and names of a trace. Each is described by
    what it is called, without its value."""
    lanes = (track.label for track in trace.tracks)
    report = trace.report
    texts = (*trace.names, *lanes, *report.process_names, *report.damaged_keys)
    return find_secret_names(trace.keys, texts)


def find_secret_names(keys: Mapping[str, Any], names: Iterable[str]) -> tuple[str, ...]:
    """The names of keys whose values look like secrets, and the kinds of tokens in
    other texts. Each is listed once.

    `keys` are the keys around the events with their values, `names` any other texts.
    """
    texts = [name for name in names if not name.startswith(BEGINNINGS_OF_CODE)]
    names_of_secrets = [*_find_secret_keys(keys, texts)]
    text = BETWEEN_TEXTS.join(texts)
    names_of_secrets += [token.name for token in find_tokens(text)]
    for span in find_named_secrets(text):
        if is_secret(span.name, text[span.begin : span.end]):
            names_of_secrets.append(span.name)
    return tuple(dict.fromkeys(names_of_secrets))


def _find_secret_keys(keys: Mapping[str, Any], texts: list[str]) -> Iterator[str]:
    """Yield the keys whose values look like secrets, at any depth. All other values
    that are texts are appended to `texts`."""
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
