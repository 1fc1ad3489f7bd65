"""Removes private data from one text of a trace. A text is any string of the JSON,
decoded; its context does not matter. What the value of a key is is judged by the name
of the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, auto
from functools import lru_cache
from urllib.parse import unquote

from fusetui.text.patterns import compiled, lazy_pattern
from fusetui.trace.scrub.detect import (
    SETTING,
    end_of_value,
    find_named_secrets,
    find_tokens,
    may_hold_setting,
    name_of,
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
    read_rows,
    replaced,
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


def _read_kinds(where: str) -> dict[str, KeyKind]:
    """The kind of each key word in one part of key_words.txt. `where` is the part:
    words that are keys anywhere, that end a key, and so on."""
    kinds: dict[str, KeyKind] = {}
    for row_where, kind, words in read_rows("key_words.txt"):
        if row_where == where:
            kinds |= dict.fromkeys(words.split(), KeyKind[kind])
    return kinds


_ANYWHERE = _read_kinds("anywhere")
_ENDS = _read_kinds("end")
_IN_METADATA = _ANYWHERE | _read_kinds("metadata")
_JOB_KEY = re.compile(r"(?i)tw_|mast_|PT_PROFILER_|ai_rm_|logical_server_")

NAME = re.compile(r"[\w .:/-]{1,80}")
"""The form of a name; any other text does not say what its value is."""

VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_+[A-Z0-9]+)+")
KNOWN_VARIABLE = re.compile(
    r"HOME|USER|LOGNAME|HOSTNAME|PWD|OLDPWD|PATH|SHELL|MAIL|LANG|TERM|EDITOR|DISPLAY|USERNAME"
    r"|(?:COMPUTER|USERDOMAIN|USERPROFILE|HOMEPATH|APPDATA)\w*|LD_\w+|PYTHON\w+|VIRTUAL_ENV|LC_\w+"
    r"|MASTER_(?:ADDR|PORT)|(?:CONDA|SLURM|PBS|LSB|KUBERNETES|AWS|AZURE|GOOGLE|GCP|GCLOUD|HF|WANDB"
    r"|MLFLOW|SSH|SUDO|XDG|DOCKER|GIT|GITHUB|GITLAB|CI|POD|NODE|HOST|USER|DBUS|OPENAI|ANTHROPIC)_\w+"
)
TELLING = frozenset(_read_kinds("environment"))
"""An object with two of these keys is an environment, whatever it is called."""


@lru_cache(maxsize=1 << 14)
def kind_of_key(key: str) -> KeyKind | None:
    """The kind of private value that a key has anywhere in a trace, also in the args of
    an event. None if the key says nothing about its value."""
    is_name = NAME.fullmatch(key) is not None
    if is_name and _normalize_key(key) in _ANYWHERE:
        return _ANYWHERE[_normalize_key(key)]
    key_secrecy = secrecy(key)
    if key_secrecy >= Secrecy.USUAL:
        return KeyKind.SECRET
    if is_name:
        for ending, kind in _ENDS.items():
            if key.lower().endswith(ending):
                return kind
    return None if key_secrecy is Secrecy.NONE else KeyKind.MAYBE


def kind_in_metadata(key: str, is_top: bool) -> KeyKind | None:
    """The kind of private value of a key outside traceEvents, where more words are
    unambiguous. `is_top` says that it is a key of the document itself. None if the key
    says nothing."""
    if not NAME.fullmatch(key):
        return kind_of_key(key)
    kind = _IN_METADATA.get(_normalize_key(key)) or kind_of_key(key)
    if kind not in (None, KeyKind.MAYBE):
        return kind
    if _JOB_KEY.match(key):
        return KeyKind.OTHER
    if is_top and (VARIABLE.fullmatch(key) or key in TELLING):
        return KeyKind.OTHER
    if key.lower().endswith("path"):
        return KeyKind.FOLDER
    return kind


def _normalize_key(key: str) -> str:
    """The letters and digits of a key, in lower case; what is behind its first 80
    characters is left out."""
    return re.sub(r"[^a-z0-9]", "", key[:80].lower())


VALUE = r"[^\s\"'\\,;&|<>()\[\]{}]++"
DUMP = lazy_pattern(r"(?<=[\r\n])((?:export )?[A-Za-z_]\w{0,80}=)([^\r\n]++)")
MIN_DUMP_LINES = 3  # NAME=value, of a text that is an environment

PROGRAM = lazy_pattern(
    r"(?<![\w-])(?P<program>python[\d.]{0,6}|ipython|pypy\d?|torchrun|accelerate|deepspeed|srun|sbatch"
    r"|salloc|mpirun|mpiexec|bash|zsh|sudo|ssh|scp|rsync|docker|podman|kubectl|jupyter(?:-\w{1,20})?"
    r"|nsys|ncu|curl|wget|[\w.-]{1,100}\.(?:py|sh))(?P<blank>[ \t]{1,4}+)(?P<rest>[^\n]++)"
)
ARGUMENTS = lazy_pattern(r"(?:^|\s)--?[A-Za-z]|\.(?:py|sh|ipynb)\b|\w=|://|[~/]\w")
OF_NCCL = lazy_pattern(r"(?m)^([\w.-]{1,255}+):\d++:\d++ \[\d++\] NCCL")
OF_ID = lazy_pattern(r"\buid=\d++\(([^()\s]{1,64}+)\)")
HOME = lazy_pattern(
    r"(?:[/\\](?:home|Users)[/\\]{1,2}+|torchinductor_|pytest-of-|(?<![\w~])~(?=[A-Za-z][\w.-]{0,64}+/))"
    r"([^/\\\s\"'`;:,<>|*?()]{1,64}+)",
    re.IGNORECASE,
)
ACCOUNT = lazy_pattern(r"(?:<user\d+>|[\w.+-]{1,64}+)@(?:<host\d+>|[\w.-]{1,200}+)")
MAX_ROUNDS = 8  # more than three were never needed


ENCODED = lazy_pattern(
    r"(?<![^\s\"'`<>])[^\s\"'`<>%]{0,2000}+%[0-9A-Fa-f]{2}[^\s\"'`<>]{0,8000}+"
)
"""A run of characters with an escape of a URL in it."""
MAX_DECODINGS = 4  # of a text that was encoded again and again


def scrub_encoded(text: str, scrub: Callable[[str], str]) -> str:
    """A text in which URL-encoded parts are scrubbed as well.

    Each part is decoded and given to `scrub`. If that changes it, the changed part
    replaces it and stays decoded; otherwise it is kept as it was.
    """

    def shorten(match: re.Match[str]) -> str:
        """The run as it was if `scrub` changes nothing, else decoded and scrubbed."""
        decoded = match[0]
        for _ in range(MAX_DECODINGS):
            decoded = unquote(decoded)
        scrubbed = scrub(decoded)
        return match[0] if scrubbed == decoded else scrubbed

    return ENCODED.sub(shorten, text)


def scrub_commands(text: str, given: Placeholders) -> str:
    """A text in which a placeholder stands for the arguments of each command line."""

    def cut(command: re.Match[str]) -> str:
        """A command without its arguments."""
        rest = command["rest"]
        is_script = command["program"].endswith((".py", ".sh"))
        # other programs are also words of sentences
        has_arguments = rest[0] == "-" if is_script else ARGUMENTS.search(rest)
        if is_placeholder(rest) or not has_arguments:
            return command[0]
        return command["program"] + command["blank"] + given.give("command", rest)

    if " " not in text and "\t" not in text:
        return text
    return PROGRAM.sub(cut, text)


def scrub_secrets(text: str, names: Names) -> str:
    """A text in which placeholders stand for tokens of known forms, and for values that
    a name says are secret."""
    for find_secrets in (find_tokens, find_named_secrets):
        changes = (
            (begin, end, names.secret(text[begin:end]))
            for begin, end, _ in find_secrets(text)
        )
        text = replaced(text, changes)
    return text


def scrub_settings(text: str, names: Names) -> str:
    """A text in which placeholders stand for the values of variables, users and hosts.

    A text with several lines of `NAME=value` is the output of `env`: then every value
    in it is replaced.
    """
    if not may_hold_setting(text):
        return text
    text = replaced(text, _find_settings_to_hide(text, names))
    # the pattern looks for a line break before each line, also the first one
    is_dump = "\n" in text and len(DUMP.findall(f"\n{text}")) >= MIN_DUMP_LINES
    if not is_dump:
        return text

    def hide_value(line: re.Match[str]) -> str:
        name = line[1]
        value = line[2]
        if is_placeholder(value):
            return line[0]
        return name + names.secret(value)

    return DUMP.sub(hide_value, f"\n{text}")[1:]


def _find_settings_to_hide(text: str, names: Names) -> Iterator[tuple[int, int, str]]:
    """Yield begin and end of each value to be hidden in a text, and the placeholder
    that replaces it."""
    is_environment = _is_environment(text)
    search_from = 0
    while setting := compiled(SETTING).search(text, search_from):
        search_from = setting.end()
        hide = _choose_placeholder(setting, is_environment, names)
        if hide is None:
            continue
        begin = search_from
        end = end_of_value(text, setting, VALUE)
        value = text[begin:end]
        if value and not is_placeholder(value):
            yield begin, end, hide(value)
            search_from = end


def _is_environment(text: str) -> bool:
    """Whether a text sets at least two of the variables that every environment has."""
    if "PATH" not in text and "HOME" not in text and "USER" not in text:
        return False
    names = map(name_of, compiled(SETTING).finditer(text))
    return len(TELLING.intersection(names)) > 1


def _choose_placeholder(
    setting: re.Match[str], is_in_environment: bool, names: Names
) -> Callable[[str], str] | None:
    """The function that gives the placeholder for the value of a setting; None if the
    value is kept."""
    name = name_of(setting)
    sign = setting["sign"]
    kind = kind_of_key(name)
    is_variable = is_in_environment and name.isupper()
    if kind in (KeyKind.USER, KeyKind.HOST) and sign in (None, "=", ":"):
        # a colon is also a part of sentences
        is_certain = sign != ":" or setting["quote"] or is_variable
        if not is_certain:
            return None
        return names.user if kind is KeyKind.USER else names.host
    is_known = sign == "=" and KNOWN_VARIABLE.fullmatch(name) is not None
    return names.secret if is_variable or is_known else None


Known = Mapping[str, Iterable[str]]
"""Names that are known to be private before a text is read, by kind: user, host,
secret."""


class Texts:
    """The texts of one file. Names are learnt from all of them before the first is
    scrubbed."""

    def __init__(self) -> None:
        """Start without any known names."""
        self.given = Placeholders()
        self.names = Names(self.given)

    def expect(self, known: Known) -> None:
        """Learn names that are private wherever they occur in the file."""
        for kind, names in known.items():
            for name in names:
                self.names.expect(kind, name)

    def learn(self, text: str) -> str:
        """Learn the private names in a text, and return it without what its own form
        reveals, such as paths and URLs."""
        self.names.see(text)
        return _repeat_until_stable(text, self._scrub_forms)

    def scrub(self, text: str) -> str:
        """The text without anything private that is known by now."""
        return self.finish(self.learn(text))

    def finish(self, learnt: str) -> str:
        """Remove the learned names from a text that `learn` has returned."""
        return _repeat_until_stable(learnt, self._by_name)

    def path(self, text: str) -> str:
        """Scrub a text that is a single path. It may contain spaces and end in a
        folder."""
        self._learn_names(text)
        return self.scrub(scrub_path(text, self.given))

    def _by_name(self, text: str) -> str:
        """A text without the names that are known so far. If that changes it, its forms
        are scrubbed once more."""
        scrubbed = self.names.scrub(text)
        has_login = "<user" in scrubbed or "<host" in scrubbed
        if "@" in scrubbed and has_login:
            scrubbed = ACCOUNT.sub(self._account, scrubbed)
        if scrubbed == text:
            return text
        return _repeat_until_stable(scrubbed, self._scrub_forms)

    def _account(self, match: re.Match[str]) -> str:
        """The placeholder of an account such as `ada@<host1>`. An account without a
        placeholder in it is kept."""
        account = match[0]
        return self.given.give("mail", account) if "<" in account else account

    def _scrub_forms(self, text: str) -> str:
        """A text without what its form reveals, also where a URL encodes it."""
        if "%" in text:
            # Secrets come first, because a decoded quote would end them.
            text = scrub_secrets(text, self.names)
            text = scrub_encoded(text, self._scrub_decoded_forms)
        return self._scrub_decoded_forms(text)

    def _scrub_decoded_forms(self, text: str) -> str:
        """A text without what its form reveals: URLs, secrets, settings, commands,
        addresses, paths and hosts. Names in it are learned."""
        self._learn_names(text)
        text = scrub_urls(text, self.given, self.names)
        text = scrub_secrets(text, self.names)
        text = scrub_settings(text, self.names)
        text = scrub_commands(text, self.given)
        text = scrub_mails(text, self.given, self.names)
        text = scrub_paths(text, self.given)
        return scrub_hosts(text, self.names)

    def _learn_names(self, text: str) -> None:
        """Learn names from home folders, from log lines of NCCL and from the output of
        `id`."""
        for home in HOME.finditer(text):
            self.names.user(home[1])
        if "NCCL" in text:
            for line in OF_NCCL.finditer(text):
                self.names.host(line[1])
        if "uid=" in text:
            for entry in OF_ID.finditer(text):
                self.names.user(entry[1])


def _repeat_until_stable(text: str, change: Callable[[str], str]) -> str:
    """Apply `change` to a text until it changes nothing any more, MAX_ROUNDS times at
    most.

    A placeholder may separate two words, so that the next round recognizes what is next
    to it.
    """
    for _ in range(MAX_ROUNDS):
        before = text
        text = change(text)
        if text == before:
            break
    return text
