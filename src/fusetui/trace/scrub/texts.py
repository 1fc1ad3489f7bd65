"""One text of a trace -> the same without private data. A text is any string of the
JSON, decoded; its context does not matter. What the value of a key is is judged by the
name of the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, auto
from functools import lru_cache
from urllib.parse import unquote

from fusetui.text.patterns import compiled, late
from fusetui.trace.scrub.detect import (
    SETTING,
    end_of,
    may_hold_setting,
    name_of,
    named_in,
    tokens_in,
)
from fusetui.trace.scrub.names import Names
from fusetui.trace.scrub.paths import (
    scrub_hosts,
    scrub_mails,
    scrub_path,
    scrub_paths,
    scrub_urls,
)
from fusetui.trace.scrub.secrets import (
    Placeholders,
    Secrecy,
    is_placeholder,
    replaced,
    rows_of,
    secrecy,
)


class KeyKind(Enum):
    SECRET = auto()
    MAYBE = auto()  # a secret if the value looks like one
    USER = auto()
    HOST = auto()
    COMMAND = auto()
    ENVIRONMENT = auto()  # variables with their values
    FOLDER = auto()
    TRACE = auto()  # the name of the trace
    OTHER = auto()  # private for another reason: a job, an id of the run


def _by_word(where: str) -> dict[str, KeyKind]:
    """Where a key stands, what it is of, and its words: `end` are those that keys end
    in."""
    rows = (row for row in rows_of("key_words.txt") if row[0] == where)
    return {word: KeyKind[kind] for _, kind, words in rows for word in words.split()}


_ANYWHERE, _ENDS = _by_word("anywhere"), _by_word("end")
_OF_METADATA = _ANYWHERE | _by_word("metadata")
_JOBS = re.compile(r"(?i)tw_|mast_|PT_PROFILER_|ai_rm_|logical_server_")

NAME = re.compile(r"[\w .:/-]{1,80}")
"""The form of a name; any other text does not say what its value is."""

VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_+[A-Z0-9]+)+")
KNOWN_VARIABLE = re.compile(
    r"HOME|USER|LOGNAME|HOSTNAME|PWD|OLDPWD|PATH|SHELL|MAIL|LANG|TERM|EDITOR|DISPLAY|USERNAME"
    r"|(?:COMPUTER|USERDOMAIN|USERPROFILE|HOMEPATH|APPDATA)\w*|LD_\w+|PYTHON\w+|VIRTUAL_ENV|LC_\w+"
    r"|MASTER_(?:ADDR|PORT)|(?:CONDA|SLURM|PBS|LSB|KUBERNETES|AWS|AZURE|GOOGLE|GCP|GCLOUD|HF|WANDB"
    r"|MLFLOW|SSH|SUDO|XDG|DOCKER|GIT|GITHUB|GITLAB|CI|POD|NODE|HOST|USER|DBUS|OPENAI|ANTHROPIC)_\w+"
)
TELLING = frozenset(_by_word("environment"))
"""An object with two of these keys is an environment, whatever it is called."""


@lru_cache(maxsize=1 << 14)
def kind_of(key: str) -> KeyKind | None:
    """The kind of a key anywhere in a trace, including the args of an event."""
    named = NAME.fullmatch(key) is not None
    kind = _ANYWHERE.get(_plain(key)) if named else None
    sure = secrecy(key)
    if kind is None and sure >= Secrecy.USUAL:
        return KeyKind.SECRET
    if kind is None and named:
        kind = next(
            (kind for end, kind in _ENDS.items() if key.lower().endswith(end)), None
        )
    return KeyKind.MAYBE if kind is None and sure else kind


def kind_in_metadata(key: str, top: bool) -> KeyKind | None:
    """The kind of a key outside traceEvents, where more words are unambiguous; `top`: a
    top-level key."""
    if not NAME.fullmatch(key):
        return kind_of(key)
    kind = _OF_METADATA.get(_plain(key)) or kind_of(key)
    unsure = kind in (None, KeyKind.MAYBE)
    if unsure and _JOBS.match(key):
        return KeyKind.OTHER
    if unsure and top and (VARIABLE.fullmatch(key) or key in TELLING):
        return KeyKind.OTHER
    if unsure and key.lower().endswith("path"):
        return KeyKind.FOLDER
    return kind


def _plain(key: str) -> str:
    return re.sub(r"[^a-z0-9]", "", key[:80].lower())


VALUE = r"[^\s\"'\\,;&|<>()\[\]{}]++"
DUMP = late(r"(?<=[\r\n])((?:export )?[A-Za-z_]\w{0,80}=)([^\r\n]++)")
LEAST = 3  # minimum number of lines NAME=value of a text that is an environment

PROGRAM = late(
    r"(?<![\w-])(?P<program>python[\d.]{0,6}|ipython|pypy\d?|torchrun|accelerate|deepspeed|srun|sbatch"
    r"|salloc|mpirun|mpiexec|bash|zsh|sudo|ssh|scp|rsync|docker|podman|kubectl|jupyter(?:-\w{1,20})?"
    r"|nsys|ncu|curl|wget|[\w.-]{1,100}\.(?:py|sh))(?P<blank>[ \t]{1,4}+)(?P<rest>[^\n]++)"
)
ARGUMENTS = late(r"(?:^|\s)--?[A-Za-z]|\.(?:py|sh|ipynb)\b|\w=|://|[~/]\w")
OF_NCCL = late(r"(?m)^([\w.-]{1,255}+):\d++:\d++ \[\d++\] NCCL")
OF_ID = late(r"\buid=\d++\(([^()\s]{1,64}+)\)")
HOME = late(
    r"(?:[/\\](?:home|Users)[/\\]{1,2}+|torchinductor_|pytest-of-|(?<![\w~])~(?=[A-Za-z][\w.-]{0,64}+/))"
    r"([^/\\\s\"'`;:,<>|*?()]{1,64}+)",
    re.IGNORECASE,
)
ACCOUNT = late(r"(?:<user\d+>|[\w.+-]{1,64}+)@(?:<host\d+>|[\w.-]{1,200}+)")
ROUNDS = 8  # more than three were never needed


ENCODED = late(
    r"(?<![^\s\"'`<>])[^\s\"'`<>%]{0,2000}+%[0-9A-Fa-f]{2}[^\s\"'`<>]{0,8000}+"
)
"""A run of characters with an escape of a URL in it."""


MAX_DECODINGS = 4  # of a text that was encoded again and again


def scrub_encoded(text: str, scrub: Callable[[str], str]) -> str:
    """A text whose URL-encoded runs reveal no more than `scrub` leaves of them once
    they are decoded. A run in which it changes something stays decoded."""

    def shorten(match: re.Match[str]) -> str:
        decoded = match[0]
        for _ in range(MAX_DECODINGS):
            decoded = unquote(decoded)
        scrubbed = scrub(decoded)
        return match[0] if scrubbed == decoded else scrubbed

    return ENCODED.sub(shorten, text) if "%" in text else text


def scrub_commands(text: str, given: Placeholders) -> str:
    """A text without the arguments of command lines."""

    def cut(found: re.Match[str]) -> str:
        rest = found["rest"]
        script = found["program"].endswith((".py", ".sh"))
        if is_placeholder(rest) or not (
            rest[0] == "-" if script else ARGUMENTS.search(rest)
        ):
            return found[0]
        return f"{found['program']}{found['blank']}{given.give('command', rest)}"

    return PROGRAM.sub(cut, text) if " " in text or "\t" in text else text


def scrub_secrets(text: str, names: Names) -> str:
    """A text without tokens of known forms, and without the values that a name says are
    secret."""
    for places in (tokens_in, named_in):
        found = (
            (begin, end, names.secret(text[begin:end]))
            for begin, end, _ in places(text)
        )
        text = replaced(text, found)
    return text


def scrub_settings(text: str, names: Names) -> str:
    """A text without the values of variables, users and hosts."""
    if not may_hold_setting(text):
        return text
    text = replaced(text, _settings(text, names))
    # one variable per line
    if "\n" in text and len(DUMP.findall(f"\n{text}")) >= LEAST:

        def hide(line: re.Match[str]) -> str:
            return (
                line[0] if is_placeholder(line[2]) else line[1] + names.secret(line[2])
            )

        text = DUMP.sub(hide, f"\n{text}")[1:]
    return text


def _settings(text: str, names: Names) -> Iterator[tuple[int, int, str]]:
    """Begin and end of each value to be hidden, and what replaces it."""
    at = 0
    # whether two of the variables are in it that every environment has
    everything = False
    if "PATH" in text or "HOME" in text or "USER" in text:
        known = TELLING.intersection(map(name_of, compiled(SETTING).finditer(text)))
        everything = len(known) > 1
    while found := compiled(SETTING).search(text, at):
        at = found.end()
        hide = _hiding(found, everything, names)
        end = end_of(text, found, VALUE) if hide else at
        if hide and end > at and not is_placeholder(text[at:end]):
            yield at, end, hide(text[at:end])
            at = end


def _hiding(
    found: re.Match[str], everything: bool, names: Names
) -> Callable[[str], str] | None:
    """What the value of a setting is replaced by; None if it is kept."""
    name, sign = name_of(found), found["sign"]
    kind = kind_of(name)
    variable = everything and name.isupper()
    if kind in (KeyKind.USER, KeyKind.HOST) and sign in (None, "=", ":"):
        learn = names.user if kind is KeyKind.USER else names.host
        return learn if sign != ":" or found["quote"] or variable else None
    known = sign == "=" and KNOWN_VARIABLE.fullmatch(name) is not None
    return names.secret if variable or known else None


Known = Mapping[str, Iterable[str]]
"""Names that are known to be private before a text is read, by kind: user, host,
secret."""


class Texts:
    """The texts of one file. Names are learnt from all of them before the first is
    scrubbed."""

    def __init__(self) -> None:
        self.given = Placeholders()
        self.names = Names(self.given)

    def expect(self, known: Known) -> None:
        """Learns names that are private wherever they occur."""
        for kind, names in known.items():
            for name in names:
                self.names.expect(kind, name)

    def learn(self, text: str) -> str:
        """The text without what its own form reveals; names in that are learnt."""
        self.names.see(text)
        return _settled(text, self._by_form)

    def scrub(self, text: str) -> str:
        return self.finish(self.learn(text))

    def finish(self, learnt: str) -> str:
        """The result of `learn`, without the names that were learnt."""
        return _settled(learnt, self._by_name)

    def _by_name(self, text: str) -> str:
        found = self.names.scrub(text)
        if "@" in found and ("<user" in found or "<host" in found):
            give = self.given.give
            found = ACCOUNT.sub(
                lambda m: give("mail", m[0]) if "<" in m[0] else m[0], found
            )
        return found if found == text else _settled(found, self._by_form)

    def _by_form(self, text: str) -> str:
        return self._by_decoded_form(scrub_encoded(text, self._by_decoded_form))

    def _by_decoded_form(self, text: str) -> str:
        self._learn_names(text)
        text = scrub_urls(text, self.given, self.names)
        text = scrub_secrets(text, self.names)
        text = scrub_settings(text, self.names)
        text = scrub_commands(text, self.given)
        text = scrub_mails(text, self.given, self.names)
        text = scrub_paths(text, self.given)
        return scrub_hosts(text, self.names)

    def path(self, text: str) -> str:
        """A text that is a single path, including spaces; it may end in a folder."""
        self._learn_names(text)
        return self.scrub(scrub_path(text, self.given))

    def _learn_names(self, text: str) -> None:
        """Learns names from home folders, the log of NCCL and the output of `id`."""
        for found in HOME.finditer(text):
            self.names.user(found[1])
        for found in OF_NCCL.finditer(text) if "NCCL" in text else ():
            self.names.host(found[1])
        for found in OF_ID.finditer(text) if "uid=" in text else ():
            self.names.user(found[1])


def _settled(text: str, change: Callable[[str], str]) -> str:
    """The text, changed until nothing changes any more: a placeholder may delimit a
    word, so that what is next to it is recognized."""
    for _ in range(ROUNDS):
        before, text = text, change(text)
        if text == before:
            break
    return text
