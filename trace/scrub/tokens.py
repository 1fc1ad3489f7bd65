"""Tokens of known forms in a text, whatever it is: the warning names them, `scrub` removes them.

Both ask `tokens_in`, so nothing that the warning knows stays. What has no form of its own, such as
a password or 40 hexadecimal digits, is known only by the name before it (see secrets.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fusetui.trace.scrub.secrets import compiled, is_trivial

ALPHABETS = {"A": "A-Za-z0-9", "B": "A-Za-z0-9+/=_-", "D": r"\w.=-", "H": "0-9a-fA-F",
             "L": "a-z0-9", "U": "A-Z0-9", "W": r"\w-"}  # fmt: skip

BEGIN = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[abfnrtv0])|(?<=\\u[0-9a-fA-F]{4})|(?<=\\x[0-9a-fA-F]{2})"
    r"|(?<=%[0-9a-fA-F]{2})|(?<=\[[0-9]m)|(?<=\[[0-9]{2}m))"
)
"""Where a token may begin: at a word, also after an escape of JSON, of a URL or of a terminal."""

ISSUED = "issued_tokens.txt"
"""In each line who issues it, how it begins, and what follows: an alphabet and the fewest
characters of it, as the issuers document them and as scanners of repositories know them."""


class Form(NamedTuple):
    """A form of its own; its last group, or all of it, is the secret; none if that is empty."""

    kind: str
    mark: str  # in lower case; part of every text of this form
    pattern: str


FORMS = (
    Form("a Hugging Face token", "hf_", r"hf_(?=[A-Za-z]{0,40}\d)[A-Za-z0-9]{16,}+"),
    Form(
        "a private key",
        "private key",
        r"(?:-{1,5} ?)?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?(?:(?!-----END)[\s\S])*+"
        r"(?:-----END[A-Z0-9 ]{0,40}-{0,5})?",
    ),
    Form("a private key", "putty-user-key", r"PuTTY-User-Key-File-\d[\s\S]*+"),
    Form("a password in a URL", "://", r"(?<=://)[^\s/@:\"']*+:([^\s/@\"']++)@"),
    Form(
        "a bearer token",
        "authorization",
        r"(?i:authorization)[\\\"'\]]{0,4}+\s{0,2}+[:=]\s{0,2}+[\\\"']{0,4}+"
        r"(?:[A-Za-z-]{3,12}\s{1,4}+)?(?=[^\s\"']{0,99}[\dA-Z=])([\w.~+/=:-]{8,}+)",
    ),
    Form("a bearer token", "earer ", r"(?i:bearer)\s{1,4}+(?=[\w.~+/=-]{0,99}\d)([\w.~+/=-]{8,}+)"),
    Form("a bearer token", "asic ", r"(?i:basic)\s{1,4}+(?=[\w.~+/=-]{0,99}\d)([\w.~+/=-]{12,}+)"),
    Form(
        "a password of curl",
        "curl ",
        r"curl\s[^\n]{0,400}?(?<=\s)(?:-u|--user)[ =]{0,4}+[\"']?[^\s:\"']{0,80}:([^\s\"']{3,}+)",
    ),
    Form("a signed URL", "sig", r"(?i)[?&](?:x-[a-z]{3,4}-)?sig(?:nature)?=([\w%+/=-]{16,}+)"),
    Form("an API key", "login ", r"(?<=login )([0-9a-f]{40})(?!\w)"),
    Form(
        "an AWS key",
        "aws",
        r"(?i)aws[^\n\"']{0,30}(?:key|pwd|pw|pass|token)[^\n\"']{0,20}[\\\"']{1,4}"
        r"(?:[:=, ]{1,3}[\\\"']{1,4})?([0-9a-z/+]{40})[\\\"']",
    ),
    Form("a JSON web token", "eyj", r"(eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w=-]*+)?)|eyJ[\w-]*+()"),
    Form("a JSON web token", "zxlk", r"ZXlK[\w+/-]{40,}+"),
    Form("an API key", "sk-", r"sk-(?=[\w-]{0,99}\d)(?=[\w-]{0,99}[A-Za-z])[\w-]{16,}+"),
    Form("a SendGrid key", "sg.", r"SG\.[\w=.-]{32,}+"),
    Form(
        "an Artifactory token",
        "ap",
        r"AP[\dA-F](?=[A-Z\d]{0,60}[a-z])(?=[a-z\d]{0,60}[A-Z])"
        r"(?:(?=[A-Za-z]{0,5}\d)|(?=[A-Za-z]{0,60}\d)(?=\w{20}))[A-Za-z0-9]{8,}+(?![\w-])",
    ),
    Form(
        "a Telegram token",
        ":",
        r"(?<!\d)\d{5,16}:(?:A[\w-]{32,}+|(?=[\w-]{0,33}\d)(?=[\w-]{0,33}[A-Z])(?=[\w-]{0,33}[a-z])"
        r"[\w-]{35}(?![\w-]))",
    ),
    Form("a Discord token", ".", r"[MNO][\w-]{23,25}\.[\w-]{6}\.(?=[\w-]{0,26}\d)[\w-]{27,}+"),
    Form("a Vault token", "s.", r"s\.(?=[a-zA-Z]{0,23}\d)[A-Za-z0-9]{24}(?![\w.])"),
    Form("a Mailchimp key", "-us", r"[0-9a-z]{32}-us[0-9]{1,2}"),
    Form("a Mailgun key", "mailgun", r"(?i)mailgun[^\n]{0,30}?([0-9a-h]{32}(?:-[0-9a-h]{8}){2})"),
    Form("an Azure secret", "q~", r"[\w~.]{3}\dQ~[\w~.-]{31,34}"),
    Form("a Terraform token", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,}+"),
    Form("a MaxMind key", "_mmk", r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
    Form("a Harness token", "at.", r"[ps]at\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}"),
    Form("an Airtable token", "pat", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    Form(
        "an Authress key",
        ".acc",
        r"(?:sc|ext|scauth|authress)_[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[_-][\w-]{10,32}\.[\w+/=-]{30,}+",
    ),
    Form("a Cloudflare key", "v1.0-", r"v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}+"),
    Form("a Facebook token", "|", r"\d{15,16}[|%][\w-]{27,40}"),
    Form("a Mapbox token", "k.", r"[ps]k\.(?:[a-z0-9]{60}|eyJ[\w-]{20,200})\.[\w-]{22}"),
    Form("a Yandex token", "t1.", r"t1\.[\w-]{1,400}={0,2}\.[\w-]{86}={0,2}"),
    Form("a Grafana key", "eyjrijoi", r"eyJrIjoi[A-Za-z0-9]{60,}+={0,3}"),
    Form(
        "a webhook",
        "hooks.slack.com/",
        r"(?i)hooks\.slack\.com/(?:services|workflows|triggers)/[\w+/-]{20,}+",
    ),
    Form(
        "a webhook", "webhook.office.com/", r"(?i)[\w.-]{1,80}\.webhook\.office\.com/[\w@/-]{40,}+"
    ),
)
"""Those that take more than a beginning to be known."""

SEPARATORS = str.maketrans(dict.fromkeys("_-.~:/=+%|,;()[]{}<>\"'`\\\x1b@#$&?!*^", " "))
ESCAPE = r"\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|\\[abfnrtv0]|%[0-9a-fA-F]{2}|\[[0-9]{1,3}m"


def tokens_in(text: str) -> Iterator[tuple[int, int, str]]:
    """Begin, end and kind of each token, from left to right; none overlaps another."""
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


def kinds_in(text: str) -> Iterator[str]:
    """The kinds of known tokens in a text, in words: "a GitHub token"."""
    return (kind for _, _, kind in tokens_in(text))


def _patterns(text: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    """The few patterns of which at least the beginning occurs in the text."""
    issued = _issued()
    for head in issued.keys() & _heads(text):
        for kind, prefix, body in issued[head]:
            if prefix in text:
                yield kind, compiled(f"{re.escape(prefix)}{body}")
    lower = text.lower()
    for form in FORMS:
        if form.mark in lower:
            yield form.kind, compiled(form.pattern)


def _heads(text: str) -> set[str]:
    """The words of a text, and the beginnings of long ones."""
    if "\\" in text or "%" in text or "[" in text:
        text = compiled(ESCAPE).sub(" ", text)
    words = set(text.translate(SEPARATORS).split())
    for word in [*words]:
        if len(word) > 4:
            words.add(word[:4])
            if len(word) > 9:
                words.add(word[:3])
                words.add(word[:2])
    return words


@cache
def _issued() -> Mapping[str, list[tuple[str, str, str]]]:
    """First word of a prefix, or four letters of it -> kind, prefix and pattern of what follows."""
    rows: dict[str, list[tuple[str, str, str]]] = {}
    for line in Path(__file__).with_name(ISSUED).read_text("utf-8").splitlines():
        kind, prefixes, body = line.split(" : ")
        alphabet = ALPHABETS[body[0]]
        no_word = rf"(?=[{alphabet}]{{0,60}}[\dA-Z])"
        for prefix in prefixes.split():
            word = prefix.translate(SEPARATORS).split()[0]
            head = word if len(word) < len(prefix) else word[:4]
            rows.setdefault(head, []).append(
                (kind, prefix, rf"{no_word}[{alphabet}]{{{body[1:]},}}+")
            )
    return rows
