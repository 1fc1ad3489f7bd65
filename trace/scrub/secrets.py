"""What looks like a secret: by the name of a key, by its value, and by known forms of tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from fusetui.trace.scrub.listed import listed

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
ALWAYS = listed(
    """password passwd passphrase passcode pwd secret secrets credential credentials apikey
    authtoken accesstoken accesskey secretkey privatekey authorization cookie jwt bearer"""
)
"""A key whose last word is one of these is the name of a secret."""

OF_A_TOKENIZER = listed(
    """eos bos pad unk mask cls sep next prev previous last first new image video audio special
    stop start end per num max min input output prompt generated draft accepted decode prefill
    each single current cur this target text sample sampled top best blank dep make by type"""
)
"""Before "token" these mean a token of text, which is not a secret."""

OF_A_LOCK = listed(
    """api access secret private auth authentication signing signature encryption ssh ssl tls pgp
    gpg license account storage subscription service deploy master session admin root wandb hf
    openai anthropic azure aws gcp google github gitlab"""
)
"""Before "key" these mean a key that grants access, also in lower case."""

OF_A_TABLE = listed(
    """cache primary foreign sort partition public dispatch hash index lookup map registry group
    row shape config dict order join unique natural composite trace event kernel any press hot"""
)
"""Before "KEY" these mean something harmless, even in the name of a variable."""

AFTER = frozenset({"id", "value", "base", "b64", "base64", "hex", "string", "str"})
"""Words that may follow the decisive one."""

STRONG = listed("password passwd passphrase passcode secret credential credentials")
"""The values of these are secret even if they are numbers."""

SHORTEST = 4  # characters of a value that could be a secret
LIKELY = 16  # the same if the key alone is not conclusive
TRIVIAL = (
    r"(?i)\s*+|[*xX.•#_-]++|<[^>]*+>|\[[^\]]*+\]|\{[^}]*+\}|\$\{?\w++\}?|%\w++%|n/?a|none|null|nil|true"
    r"|false|yes|no|on|off|unset|empty|redacted|scrubbed|hidden|masked|removed"
)
MASKED = r"\*{3}|•{3}|\.{3}\Z|x{6}|X{6}"

TOKENS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("a Hugging Face token", ("hf_", "api_org_"), r"(?:hf|api_org)_[A-Za-z0-9]{16,}+"),
    (
        "a GitHub token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        r"(?:gh[pousr]_[A-Za-z0-9]{20,}+|github_pat_\w{20,}+)",
    ),
    ("a GitLab token", ("glpat-",), r"glpat-[\w-]{16,}+"),
    ("an API key", ("sk-",), r"sk-(?=[\w-]{0,99}\d)(?=[\w-]{0,99}[A-Za-z])[\w-]{16,}+"),
    (
        "an API key",
        ("nvapi-", "gsk_", "r8_", "sk_live_", "rk_live_", "pypi-AgE", "npm_", "dckr_pat_", "SG."),
        r"(?:nvapi-[\w-]{20,}+|gsk_\w{20,}+|r8_\w{20,}+|[sr]k_live_\w{16,}+|pypi-AgE[\w-]{20,}+"
        r"|npm_[A-Za-z0-9]{30,}+|dckr_pat_[\w-]{16,}+|SG\.[\w-]{16,99}+\.[\w-]{16,}+)",
    ),
    ("an AWS key", ("AKIA", "ASIA"), r"(?:AKIA|ASIA)[A-Z0-9]{16}"),
    ("a Slack token", ("xox", "xapp-"), r"(?:xox[a-z]-|xapp-)[\w-]{10,}+"),
    ("a Google key", ("AIza", "ya29."), r"(?:AIza[\w-]{30,}+|ya29\.[\w-]{20,}+)"),
    ("a JSON web token", ("eyJ",), r"eyJ[\w-]{8,400}+\.[\w-]{8,}+(?:\.[\w-]*+)?"),
)
"""Kind, prefix, and form as the issuers document or print it."""

PRIVATE_KEY = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?:(?!-----END)[\s\S])*+"
    r"(?:-----END[A-Z0-9 ]{0,40}-----)?"
)
LOGIN_IN_URL = r"(?<=://)[^\s/@:\"']*+:([^\s/@\"']++)@"
BEARER = r"\b(?i:bearer|basic)\s{1,4}+(?=[\w.~+/=-]{0,99}\d)([\w.~+/=-]{12,}+)"
MARKS = (
    *(mark for _, marks, _ in TOKENS for mark in marks),
    *("PRIVATE KEY-----", "://", "earer ", "asic "),
)
TOKEN = (
    r"(?<![A-Za-z0-9])(?:"
    + "|".join(f"(?P<t{n}>{form})" for n, (_, _, form) in enumerate(TOKENS))
    + ")"
)


@lru_cache(maxsize=1 << 14)
def is_secret_name(name: str) -> bool:
    """Whether this is the name of a key or variable whose value is a secret: HF_TOKEN,
    dbPassword."""
    words = [word.lower() for word in WORD.findall(name[-80:])]
    while len(words) > 1 and (words[-1] in AFTER or words[-1].isdigit()):
        words.pop()
    if not words:
        return False
    before = words[-2] if len(words) > 1 else ""
    match words[-1]:
        case "pwd":
            return before not in ("", "old")
        case "token":
            return before not in OF_A_TOKENIZER
        case "key":
            locks = before in OF_A_LOCK
            return locks or (name.isupper() and before != "" and before not in OF_A_TABLE)
        case last:
            return last in ALWAYS


def is_strong(name: str) -> bool:
    """Whether even a number with this name is a secret."""
    return not STRONG.isdisjoint(word.lower() for word in WORD.findall(name))


def is_trivial(value: str) -> bool:
    """Whether the value is blank, a switch, or already masked."""
    return bool(re.fullmatch(TRIVIAL, value) or re.search(MASKED, value))


def is_secret(name: str, value: object) -> bool:
    """Whether a key with this value reveals a secret; conservative, because the user is warned."""
    if not isinstance(value, str) or not is_secret_name(name):
        return False
    text = value.strip()
    if len(text) < SHORTEST or is_trivial(text) or text[0] in "/~.":
        return False
    if is_strong(name):
        return True
    if text.isdigit() or " " in text:
        return False
    has_digit = any(char.isdigit() for char in text)
    return name.isupper() or (len(text) >= LIKELY and has_digit)


def kinds_in(text: str) -> Iterator[str]:
    """The kinds of known tokens in a text, in words: "a GitHub token"."""
    if not any(mark in text for mark in MARKS):
        return
    for found in re.finditer(TOKEN, text):
        yield TOKENS[int((found.lastgroup or "t0")[1:])][0]
    if re.search(PRIVATE_KEY, text):
        yield "a private key"
    for form, kind in ((LOGIN_IN_URL, "a password in a URL"), (BEARER, "a bearer token")):
        if any(not is_trivial(found[1]) for found in re.finditer(form, text)):
            yield kind
