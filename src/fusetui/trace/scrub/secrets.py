"""What is the name of a secret, and what may be its value; tokens of known forms:
detect.py. And what removed text is replaced by: `dir1`, `<user2>`, ... numbered in
order of appearance.

Equal texts get equal placeholders, different texts different ones. A placeholder that
already occurs in a file is kept, and its number is not reused, so scrubbing twice
changes nothing more. A number does not reveal what it stands for; a hash could be
inverted by trying names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import cache, lru_cache
from itertools import count, pairwise
from pathlib import Path

from fusetui.text.patterns import late


def listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


def words_of(name: str) -> frozenset[str]:
    """Those in a file beside this one."""
    return listed(Path(__file__).with_name(name).read_text("utf-8"))


@cache
def rows_of(name: str) -> list[list[str]]:
    """The lines of a file beside this one, each of three parts."""
    text = Path(__file__).with_name(name).read_text("utf-8")
    return [line.split(" : ", 2) for line in text.splitlines()]


WORD = late(r"[A-Z]+(?![a-zñ])|[A-Z]?[a-zñ]+|\d+")
NAME = late(r"[\w .:/()\[\]-]{1,100}")
"""The form of a name; any other text does not say what its value is."""


class Secrecy(IntEnum):
    """How surely a name is that of a secret."""

    NONE = 0
    WEAK = 1  # only if the value looks drawn at random
    LIKELY = 2  # only if the value is no word
    USUAL = 3
    CERTAIN = 4  # a warning, too, for any value
    STRONG = 5  # even if the value is a number


WORDS = {name: listed(words) for name, _, words in rows_of("secret_words.txt")}
"""Words of names by which secrets are known; the file says what each list means."""

FEWEST, MOST = 14, 400  # characters of a value that looks random
ONE_RUN = late(r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])[\w.~+/=:%-]+", re.ASCII)
UUID = late(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
OTHERS = late(r"[_.~+/=:%-]")
SHORTEST = 4  # characters of a value that could be a secret
LIKELY = 16  # the same if the key alone is not conclusive
# of the kind of character, for each character, in what is drawn at random
CHANGES = 0.3
MANY_CHANGES = 0.45  # more than in words joined like ThisOne2
ALIKE = late(r"[a-z]+|[A-Z]+|\d+|[^a-zA-Z\d]+")
TRIVIAL = (
    r"(?i)\s*+|[*xX.•#_-]++|<[^>]*+>|\[[^\]]*+\]|\{[^}]*+\}|\$\{?\w++\}?|%\w++%|n/?a|none|null|nil|true"
    r"|false|yes|no|on|off|unset|empty|redacted|scrubbed|hidden|masked|removed"
    r"|v?\d+(?:\.\d+){1,3}(?:[.+]?(?:rc|a|b|dev|post|cu|cpu|git)\w{0,20})?"
)
MASKED = late(r"\*{3,}+|•{3,}+|\.{3,}+\Z|x{6,}+|X{6,}+")
LEFT = 8  # characters beside the mask of what is masked


def secrecy(name: str) -> Secrecy:
    """How surely the values of a key or variable with this name are secrets: HF_TOKEN,
    dbPassword, sshpass."""
    return _secrecy(name) if NAME.fullmatch(name) else Secrecy.NONE


@lru_cache(maxsize=1 << 14)
def _secrecy(name: str) -> Secrecy:
    words = [word.lower() for word in WORD.findall(name)]
    while len(words) > 1 and (words[-1] in WORDS["AFTER"] or words[-1].isdigit()):
        words.pop()
    if not words:
        return Secrecy.NONE
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if _is_strong(last) or any(word.startswith("passw") for word in words):
        return Secrecy.NONE if last in WORDS["NOT_THE_SECRET"] else Secrecy.STRONG
    if any(map(_is_strong, words)):
        return Secrecy.NONE if last in WORDS["NOT_THE_SECRET"] else Secrecy.USUAL
    locks = {
        "key": WORDS["OF_A_LOCK"],
        "token": WORDS["OF_A_LOCK"],
        "pass": WORDS["OF_A_LOGIN"],
    }.get(last, ())
    if last in WORDS["ALWAYS"] or before in locks:
        return Secrecy.CERTAIN
    of_variable = before != "" and name.isupper()  # written in capitals
    usual = {
        "pwd": before not in ("", "old"),
        "pw": before != "",
        "pat": before in WORDS["OF_A_VAULT"] or of_variable,
        "auth": name.isupper(),
        "token": before not in WORDS["OF_A_TOKENIZER"],
        "key": before in WORDS["OF_A_VAULT"]
        or (of_variable and before not in WORDS["OF_A_TABLE"]),
    }
    if usual.get(last):
        return Secrecy.USUAL
    if not WORDS["OF_A_SERVICE"].isdisjoint([*words, *map("".join, pairwise(words))]):
        return Secrecy.NONE if last in WORDS["NOT_THE_SECRET"] else Secrecy.LIKELY
    harmless = before in WORDS["OF_A_TABLE"] or before in WORDS["OF_A_TOKENIZER"]
    return Secrecy.WEAK if last in WORDS["MAYBE"] and not harmless else Secrecy.NONE


def _is_strong(word: str) -> bool:
    """Also as the end of a longer word: PGPASSWORD."""
    return (
        word.removesuffix("s").endswith(tuple(WORDS["STRONG"])) and word != "secretary"
    )


def is_trivial(value: str) -> bool:
    """Whether the value is blank, a switch, or already masked."""
    if re.fullmatch(TRIVIAL, value):
        return True
    rest, masks = MASKED.subn("", value)
    return masks > 0 and len(rest) <= LEFT


def is_random(value: str) -> bool:
    """Whether this looks drawn at random, unlike words, numbers, paths and names of
    kernels."""
    changes = len(ALIKE.findall(value)) / max(len(value), 1)
    digits = len(re.findall(r"\d+", value))
    return (
        len(value) >= LIKELY
        and (changes > MANY_CHANGES or (changes > CHANGES and digits > 2))
        and is_no_word(value)
        and not UUID.fullmatch(value)
    )


def is_no_word(value: str) -> bool:
    """Whether this is one run of letters and digits, with few other characters."""
    if (
        not FEWEST <= len(value) <= MOST
        or value[0] in "/~."
        or not ONE_RUN.fullmatch(value)
    ):
        return False
    return len(OTHERS.findall(value)) <= max(len(value) // 10, min(len(value) // 8, 5))


def hides(name: str, value: str) -> bool:
    """Whether a value is taken out because of its name."""
    sure = secrecy(name)
    if sure is Secrecy.WEAK:
        return is_random(value) and not is_trivial(value)
    if sure is Secrecy.LIKELY and not (is_no_word(value) or UUID.fullmatch(value)):
        return False
    return sure is not Secrecy.NONE and not is_trivial(value)


def is_secret(name: str, value: object) -> bool:
    """Whether a key with this value reveals a secret; conservative, because the user is
    warned: all of it `hides`."""
    if not isinstance(value, str):
        return False
    text = value.strip()
    if len(text) < SHORTEST or text[0] in "/~." or not hides(name, text):
        return False
    if secrecy(name) is not Secrecy.USUAL:
        return True
    if text.isdigit() or " " in text:
        return False
    return name.isupper() or (
        len(text) >= LIKELY and any(char.isdigit() for char in text)
    )


REMOVED = "scrubbed"  # For text that need not be distinguished from anything

FOLDER = "dir"
KINDS = ("user", "host", "mail", "secret", "command")
FORM = r"(?:dir[1-9][0-9]{0,8}|<(?:user|host|mail|secret|command)[1-9][0-9]{0,8}>)"
WHOLE = late(FORM)
INSIDE = late(rf"(?<![A-Za-z0-9]){FORM}(?![A-Za-z0-9])")


def is_placeholder(text: str) -> bool:
    return text == REMOVED or WHOLE.fullmatch(text) is not None


def replaced(text: str, changes: Iterable[tuple[int, int, str]]) -> str:
    """A text with other texts in these places [begin, end), which ascend."""
    kept: list[str] = []
    done = 0
    for begin, end, new in changes:
        kept += [text[done:begin], new]
        done = end
    return "".join([*kept, text[done:]]) if kept else text


class Placeholders:
    """The placeholders of one file."""

    def __init__(self) -> None:
        # those of the file: they are not given to anything else
        self.reserved: set[str] = set()
        # number of distinct texts that were removed, by kind
        self.counts: Counter[str] = Counter()
        self._given: dict[tuple[str, str], str] = {}
        self._numbers: dict[str, Iterator[int]] = {}

    def give(self, kind: str, text: str) -> str:
        """The placeholder of a text; a placeholder is kept as it is."""
        if is_placeholder(text):
            return text
        if (kind, text) not in self._given:
            numbers = self._numbers.setdefault(kind, count(1))
            form = f"{kind}{{}}" if kind == FOLDER else f"<{kind}{{}}>"
            names = map(form.format, numbers)
            self._given[kind, text] = next(
                name for name in names if name not in self.reserved
            )
            self.counts[kind] += 1
        return self._given[kind, text]
