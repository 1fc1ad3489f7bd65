"""What the value of a key is, judging by the name of the key: a user, a host, an environment,
..."""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache

from fusetui.trace.scrub.secrets import Secrecy, listed, secrecy


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


def _by_word(words: dict[KeyKind, str]) -> dict[str, KeyKind]:
    return {word: kind for kind, listed in words.items() for word in listed.split()}


_ANYWHERE = _by_word({
    KeyKind.USER: """user username users login loginname logname owner author startedby submittedby
        createdby launchedby runby useremail email mail account accountname fullname realname
        gituser gitauthor""",
    KeyKind.HOST: """host hostname hostnames hosts hostid fqdn computername machinename nodename
        nodelist ipaddr ipaddress hostip hostaddress masteraddr masteraddress masterhost podname
        containerid containername instanceid slurmnodelist macaddress serverhost sshclient
        sshconnection""",
    KeyKind.COMMAND: """cmdline commandline argv sysargv launchcommand runcommand execcommand
        pythonargv""",
    KeyKind.ENVIRONMENT: """env envs environ environment environmentvariables environmentvars
        envvars envvariables osenviron processenv processenvironment environmentdict envdict
        dotenv""",
    KeyKind.FOLDER: """cwd oldpwd workdir workingdir workingdirectory home homedir homedirectory
        userprofile""",
})  # fmt: skip
_OF_METADATA = _ANYWHERE | _by_word({
    KeyKind.HOST: "node nodes ip pod server domain cluster",
    KeyKind.COMMAND: "cmd command commands entrypoint executable exe",
    KeyKind.OTHER: "traceid grouptraceid",
    KeyKind.TRACE: "tracename",
})  # fmt: skip
_ENDS = _by_word({
    KeyKind.FOLDER: "dir directory folder",
    KeyKind.USER: "_user _username -user",
    KeyKind.HOST: "_hostname -hostname _fqdn",
})  # fmt: skip
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
TELLING = listed(
    """PATH HOME USER SHELL PWD HOSTNAME LANG LOGNAME TERM LD_LIBRARY_PATH PYTHONPATH VIRTUAL_ENV
    OLDPWD MAIL USERNAME USERPROFILE COMPUTERNAME APPDATA TEMP TMP TMPDIR SHLVL EDITOR LC_ALL
    LC_CTYPE CUDA_VISIBLE_DEVICES CONDA_PREFIX HF_HOME HF_TOKEN"""
)
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
        kind = next((kind for end, kind in _ENDS.items() if key.lower().endswith(end)), None)
    return KeyKind.MAYBE if kind is None and sure else kind


def kind_in_metadata(key: str, top: bool) -> KeyKind | None:
    """The kind of a key outside traceEvents, where more words are unambiguous; `top`: a top-level
    key."""
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
