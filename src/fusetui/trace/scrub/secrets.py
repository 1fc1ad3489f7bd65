"""Recognizes the names of secrets and their possible values; detect.py recognizes
tokens of known forms. And what removed text is replaced by: `dir1`, `<user2>`, ...
numbered in order of appearance.

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
from typing import NamedTuple

from fusetui.text.patterns import lazy_pattern


def listed(words: str) -> frozenset[str]:
    """The distinct words of a text, divided by blanks."""
    return frozenset(words.split())


def read_words(name: str) -> frozenset[str]:
    """The words in a file of this package, which are divided by blanks."""
    return listed(Path(__file__).with_name(name).read_text("utf-8"))


@cache
def read_rows(name: str) -> list[list[str]]:
    """The rows of a file of this package: a line each, divided into three parts at ` :
    `."""
    text = Path(__file__).with_name(name).read_text("utf-8")
    return [line.split(" : ", 2) for line in text.splitlines()]


WORD = lazy_pattern(r"[A-Z]+(?![a-zñ])|[A-Z]?[a-zñ]+|\d+")
NAME = lazy_pattern(r"[\w .:/()\[\]-]{1,100}")
"""The form of a name; any other text does not say what its value is."""


class Secrecy(IntEnum):
    """How surely a name is that of a secret."""

    NONE = 0
    WEAK = 1  # only if the value looks drawn at random
    LIKELY = 2  # only if the value is no word
    USUAL = 3
    CERTAIN = 4  # a warning, too, for any value
    STRONG = 5  # even if the value is a number


WORDS = {name: listed(words) for name, _, words in read_rows("secret_words.txt")}
"""Words of names by which secrets are known; the file says what each list means."""
WORDS_OF_LOCKS = {
    "key": WORDS["OF_A_LOCK"],
    "token": WORDS["OF_A_LOCK"],
    "pass": WORDS["OF_A_LOGIN"],
}
"""By the last word of a name: which words before it make it CERTAIN."""

MIN_SECRET_CHARS = 4
MIN_TELLING_CHARS = 16  # of a secret, if the name alone is not conclusive
MIN_NO_WORD_CHARS, MAX_NO_WORD_CHARS = 14, 400
ONE_RUN = lazy_pattern(r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])[\w.~+/=:%-]+", re.ASCII)
UUID = lazy_pattern(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
SEPARATORS = lazy_pattern(r"[_.~+/=:%-]")
RUN_OF_A_KIND = lazy_pattern(r"[a-z]+|[A-Z]+|\d+|[^a-zA-Z\d]+")


class RandomForm(NamedTuple):
    """How often the kind of character changes at least, for each character, in a value
    drawn at random. The average of such values is 0.6."""

    min_runs_a_char: float
    min_runs_a_char_with_numbers: float  # in a value with some numbers
    min_numbers: int


SHORT_FORM = RandomForm(
    min_runs_a_char=0.45,  # more than in words joined like ThisOne2
    min_runs_a_char_with_numbers=0.3,
    min_numbers=3,
)
LONG_FORM = RandomForm(
    min_runs_a_char=0.35,  # long values vary less around the average
    min_runs_a_char_with_numbers=0.3,
    min_numbers=2,
)
MIN_LONG_CHARS = 32
TRIVIAL = (
    r"(?i)\s*+|[*xX.•#_-]++|<[^>]*+>|\[[^\]]*+\]|\{[^}]*+\}|\$\{?\w++\}?|%\w++%|n/?a|none|null|nil|true"
    r"|false|yes|no|on|off|unset|empty|redacted|scrubbed|hidden|masked|removed"
    r"|v?\d+(?:\.\d+){1,3}(?:[.+]?(?:(?:rc|a|b|dev|post|cu)\d{0,12}|cpu|git[0-9a-f]{0,20})){0,2}"
)
MASK = lazy_pattern(r"\*{3,}+|•{3,}+|\.{3,}+\Z|x{6,}+|X{6,}+")
MAX_CHARS_BESIDE_MASK = 8  # of a value that is masked


def secrecy(name: str) -> Secrecy:
    """How surely a key or variable with this name has a secret value, as HF_TOKEN,
    dbPassword and sshpass do. NONE for a text that does not look like a name."""
    return _judge_name(name) if NAME.fullmatch(name) else Secrecy.NONE


@lru_cache(maxsize=1 << 14)
def _judge_name(name: str) -> Secrecy:
    """How surely a setting with this name has a secret value.

    Its last words decide, by the lists in WORDS: `db_password` is STRONG, and
    `password_length` NONE, as it tells only something about the secret.
    """
    words = _deciding_words(name)
    if not words:
        return Secrecy.NONE
    last_word = words[-1]
    word_before = words[-2] if len(words) > 1 else ""
    is_about_secret = last_word in WORDS["NOT_THE_SECRET"]

    has_password = any(word.startswith("passw") for word in words)
    if has_password or _is_strong_word(last_word):
        return Secrecy.NONE if is_about_secret else Secrecy.STRONG
    if any(_is_strong_word(word) for word in words):
        return Secrecy.NONE if is_about_secret else Secrecy.USUAL

    is_of_lock = word_before in WORDS_OF_LOCKS.get(last_word, ())
    if is_of_lock or last_word in WORDS["ALWAYS"]:
        return Secrecy.CERTAIN
    if _is_usually_secret(name, last_word, word_before):
        return Secrecy.USUAL
    if _names_service(words):
        return Secrecy.NONE if is_about_secret else Secrecy.LIKELY

    is_of_table = word_before in WORDS["OF_A_TABLE"]
    is_of_tokenizer = word_before in WORDS["OF_A_TOKENIZER"]
    is_harmless = is_of_table or is_of_tokenizer
    if last_word in WORDS["MAYBE"] and not is_harmless:
        return Secrecy.WEAK
    return Secrecy.NONE


def _names_service(words: list[str]) -> bool:
    """Whether one of the words of a name, or two in a row written as one, is a service
    whose keys have no form of their own: `new_relic`."""
    joined_pairs = [first + second for first, second in pairwise(words)]
    return not WORDS["OF_A_SERVICE"].isdisjoint([*words, *joined_pairs])


def _deciding_words(name: str) -> list[str]:
    """The words of a name in lower case, without those at its end that say nothing:
    `apiKey2` gives api and key."""
    words = [word.lower() for word in WORD.findall(name)]
    while len(words) > 1 and (words[-1] in WORDS["AFTER"] or words[-1].isdigit()):
        words.pop()
    return words


def _is_strong_word(word: str) -> bool:
    """Whether a word alone says that a value is secret, also at the end of a longer
    word: PGPASSWORD."""
    if word == "secretary":
        return False
    return word.removesuffix("s").endswith(tuple(WORDS["STRONG"]))


def _is_usually_secret(name: str, last: str, before: str) -> bool:
    """Whether values of a name are usually secret, judged by its last two words.
    `before` is "" if it has only one word."""
    is_variable = before != "" and name.isupper()  # written in capitals
    match last:
        case "pwd":
            return before not in ("", "old")
        case "pw":
            return before != ""
        case "pat":
            return is_variable or before in WORDS["OF_A_VAULT"]
        case "auth":
            return name.isupper()
        case "token":
            return before not in WORDS["OF_A_TOKENIZER"]
        case "key":
            is_harmless = before in WORDS["OF_A_TABLE"]
            return before in WORDS["OF_A_VAULT"] or (is_variable and not is_harmless)
    return False


def is_trivial(value: str) -> bool:
    """Whether a value cannot be a secret: it is blank, a switch, a version or already
    masked."""
    if re.fullmatch(TRIVIAL, value):
        return True
    rest, masks = MASK.subn("", value)
    return masks > 0 and len(rest) <= MAX_CHARS_BESIDE_MASK


def is_random(value: str) -> bool:
    """Whether a value looks drawn at random, unlike words, numbers, paths and names of
    kernels. In random text the kind of character changes often."""
    if len(value) < MIN_TELLING_CHARS:
        return False
    runs_a_char = len(RUN_OF_A_KIND.findall(value)) / len(value)
    numbers = len(re.findall(r"\d+", value))
    form = LONG_FORM if len(value) >= MIN_LONG_CHARS else SHORT_FORM
    min_runs_a_char = form.min_runs_a_char
    if numbers >= form.min_numbers:
        min_runs_a_char = form.min_runs_a_char_with_numbers
    is_mixed = runs_a_char > min_runs_a_char
    return is_mixed and is_no_word(value) and not UUID.fullmatch(value)


def is_no_word(value: str) -> bool:
    """Whether a value is a single run of letters and digits, with few other characters
    and of the length of a key. Paths are none."""
    if not MIN_NO_WORD_CHARS <= len(value) <= MAX_NO_WORD_CHARS:
        return False
    is_path = value[0] in "/~."
    if is_path or not ONE_RUN.fullmatch(value):
        return False
    # base64 and dotted keys have a few separators, sentences joined by dashes have more
    max_separators = max(len(value) // 10, min(len(value) // 8, 5))
    return len(SEPARATORS.findall(value)) <= max_separators


def hides_value(name: str, value: str) -> bool:
    """Whether a value is taken out because of the name before it. The weaker the name,
    the more the value has to look like a secret."""
    name_secrecy = secrecy(name)
    if name_secrecy is Secrecy.NONE or is_trivial(value):
        return False
    match name_secrecy:
        case Secrecy.WEAK:
            return is_random(value)
        case Secrecy.LIKELY:
            return is_no_word(value) or UUID.fullmatch(value) is not None
    return True


def is_secret(name: str, value: object) -> bool:
    """Whether a key with this value reveals a secret, of which the user is warned.

    A false warning is worse than a missed one here, so more is required than for taking
    the value out.
    """
    if not isinstance(value, str):
        return False
    text = value.strip()
    if len(text) < MIN_SECRET_CHARS:
        return False
    is_path = text[0] in "/~."
    if is_path or not hides_value(name, text):
        return False
    if secrecy(name) is not Secrecy.USUAL:
        return True
    if text.isdigit() or " " in text:
        return False
    if name.isupper():
        return True
    return len(text) >= MIN_TELLING_CHARS and any(char.isdigit() for char in text)


REMOVED = "scrubbed"  # for text that need not be distinguished from anything

FOLDER = "dir"
KINDS = ("user", "host", "mail", "secret", "command")
FORM = r"(?:dir[1-9][0-9]{0,8}|<(?:user|host|mail|secret|command)[1-9][0-9]{0,8}>)"
WHOLE = lazy_pattern(FORM)
INSIDE = lazy_pattern(rf"(?<![A-Za-z0-9]){FORM}(?![A-Za-z0-9])")


def is_placeholder(text: str) -> bool:
    """Whether the whole text is a placeholder, such as dir1 or <user2>."""
    return text == REMOVED or WHOLE.fullmatch(text) is not None


def replaced(text: str, changes: Iterable[tuple[int, int, str]]) -> str:
    """A text with replacements for some of its ranges. `changes` has begin, end and new
    text of each range, in ascending order without overlaps."""
    pieces: list[str] = []
    copied_up_to = 0
    for begin, end, new in changes:
        pieces += [text[copied_up_to:begin], new]
        copied_up_to = end
    if not pieces:
        return text
    return "".join([*pieces, text[copied_up_to:]])


class Placeholders:
    """The placeholders of one file."""

    def __init__(self) -> None:
        """Start without placeholders."""
        # those of the file: they are not given to anything else
        self.reserved: set[str] = set()
        # number of distinct texts that were removed, by kind
        self.counts: Counter[str] = Counter()
        self._given: dict[tuple[str, str], str] = {}
        self._numbers: dict[str, Iterator[int]] = {}

    def give(self, kind: str, text: str) -> str:
        """The placeholder of a text; equal texts of a kind have the same one. A text
        that is a placeholder already is kept as it is."""
        if is_placeholder(text):
            return text
        if (kind, text) not in self._given:
            self._given[kind, text] = self._next_free(kind)
            self.counts[kind] += 1
        return self._given[kind, text]

    def _next_free(self, kind: str) -> str:
        """The next numbered placeholder of a kind that does not occur in the document
        itself."""
        for number in self._numbers.setdefault(kind, count(1)):
            name = f"{kind}{number}" if kind == FOLDER else f"<{kind}{number}>"
            if name not in self.reserved:
                return name
        raise AssertionError("count() has no end")
