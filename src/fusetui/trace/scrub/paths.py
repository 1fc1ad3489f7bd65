"""Paths in a text: folders become placeholders; file names and paths in site-packages
are kept. And URLs, e-mail addresses, hosts with a domain and IP addresses.

`/home/ada/my work/train.py(12): main` -> `dir1/train.py(12): main`
`/opt/venv/lib/python3.12/site-packages/torch/nn/init.py` ->
`dir2/site-packages/torch/nn/init.py`
"""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import AddressValueError, IPv6Address

from fusetui.trace.scrub.names import Names
from fusetui.trace.scrub.secrets import (
    FOLDER,
    FORM,
    Placeholders,
    is_placeholder,
    listed,
    rows_of,
    words_of,
)

PACKAGES = words_of("public_packages.txt")
"""Publicly available packages, of whose files the profiler records what follows
site-packages: `torch/nn/modules/linear.py`. Names that users also give to folders of
their own (datasets, docker) are left out."""

_STOP = r"\s/\\\"'`;:,<>|*?(){}\[\]\x00-\x1f"  # where a part of a path ends
_PART = rf"[^{_STOP}]++"
_BRACKETED = r"[(\[{](?!\d++[)\]}])[^\s/\\()\[\]{}\"']{0,80}+[)\]}]"
_FOLDER = rf"(?:[^{_STOP}]++|{_BRACKETED})++"
_SEP = r"[/\\]++"
_ENDINGS = {name: words.split() for name, _, words in rows_of("file_endings.txt")}
_ALL = [*_ENDINGS["code"], *_ENDINGS["others"]]
_ENDED = rf"\.(?:{'|'.join(_ALL)})(?:\.\d+)*"
_NO_FILE = "".join(
    rf"(?<!\.(?:{'|'.join(ending for ending in _ALL if len(ending) == length)}))"
    for length in sorted({len(ending) for ending in _ALL})
)
FILE = re.compile(rf"[^/\\.][^/\\]*?{_ENDED}", re.IGNORECASE)
CODE = re.compile(rf".*\.(?:{'|'.join(_ENDINGS['code'])})", re.IGNORECASE | re.DOTALL)
HOMES = re.compile(r"(?:^|/)(?:home|users)$", re.IGNORECASE)
HOME_INSIDE = re.compile(r"(?:^|/)(?:home|users)/.", re.IGNORECASE)
LIBRARY = re.compile(
    r"(?:^|(?P<before>.*)/)(?P<kept>(?:site|dist)-packages(?:/.*)?)", re.DOTALL
)

_ROOTS = "home|users|root|tmp|mnt|data|opt|usr|var|srv|etc|scratch|workspace|private|volumes|nfs|lustre"
PATH = re.compile(
    rf"""
    (?P<absolute>
        (?: (?:(?<![\w.)>\]}}%~$/\\])|(?<=-[ILB])) (?!(?<=[A-Za-z]:)//(?!/)) /++(?!\w{{1,20}}+>)
          | (?<=[)>\]}}]) /++(?=(?:{_ROOTS})/)
          | (?<![A-Za-z0-9])[A-Za-z]:{_SEP}
          | (?<![\w\\])\\{{2,8}}+(?=\w)
          | (?<![\w~])~[\w.-]{{0,64}}+{_SEP}
          | (?<![\w.])\.{{1,2}}+{_SEP}
          | \$(?:\w{{1,64}}+|\{{\w{{1,64}}+\}}){_SEP}
          | %\w{{1,64}}+%{_SEP}
        )
        (?: {_FOLDER}{_SEP}
          | {_FOLDER}{_NO_FILE}(?:\x20{{1,4}}+(?!-){_FOLDER}){{1,5}}+{_SEP}
        )*+
        (?:{_PART})?
    )
    | (?P<relative>
        (?<![^{_STOP}=&!])(?<![)>\]}}/\\])(?!-[ILB]/)
        [^{_STOP}=&!]++ (?:{_SEP}{_PART})++ (?:{_SEP})?+
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)

ENCODED = re.compile(
    r"(?<![^\s\"'`<>()=;,])[^\s\"'`<>()=;,]{0,2000}?%2F[^\s\"'`<>()=;,]++",
    re.IGNORECASE,
)
"""A path as it appears in a URL: home%2Fada."""

ROOTED = re.compile(r"(?:/|~/|[A-Za-z]:[/\\])(?=.*[^\s])[^:;,\"'<>|*?()\x00-\x1f]++")
FILE_BEFORE_BLANK = re.compile(rf"{_ENDED}\s", re.IGNORECASE)
MOST_BLANKS = 4  # in the last part of a path; with more it is a sentence


def scrub_paths(text: str, given: Placeholders) -> str:
    """A text whose paths contain no folder names."""
    if "%2" in text:
        text = ENCODED.sub(lambda found: given.give(FOLDER, found[0]), text)
    if "/" not in text and "\\" not in text:
        return text
    if _is_one_path(text):
        return scrub_path(text, given)
    return PATH.sub(lambda found: _shorten(found, given), text)


def scrub_path(path: str, given: Placeholders) -> str:
    """Treats the whole text as one path, including spaces; the last part may be a
    folder."""
    plain = path.replace("\\", "/")
    return _public(plain, given) if plain.strip("/") else path


def _is_one_path(text: str) -> bool:
    """Whether a text with spaces is a single path: `/home/ada/my work`."""
    last = text.replace("\\", "/").rpartition("/")[2]
    if " " not in text or last.count(" ") > MOST_BLANKS or " /" in text:
        return False
    return bool(ROOTED.fullmatch(text)) and not FILE_BEFORE_BLANK.search(text)


def _shorten(found: re.Match[str], given: Placeholders) -> str:
    path = found[0]
    body = path.rstrip(".") or path
    plain = body.replace("\\", "/")
    folder, _, name = plain.rpartition("/")
    if found.lastgroup == "relative":
        if not FILE.fullmatch(name) and not HOME_INSIDE.search(plain):
            # words divided by a slash may be anything: 0/1, tokens/s, train/loss
            return path
        if plain.split("/", 1)[0] in PACKAGES and CODE.fullmatch(name):
            return path
    elif not folder.strip("/.") and (len(name) < 2 or FILE.fullmatch(name)):
        return path
    return _public(plain, given) + path[len(body) :]


def _public(plain: str, given: Placeholders) -> str:
    """A path with a placeholder for its folder, or for all of it if it ends in a
    folder."""
    folder, _, name = plain.rpartition("/")
    if not FILE.fullmatch(name) or HOMES.search(folder):
        folder, name = plain.rstrip("/"), ""
    library = LIBRARY.fullmatch(folder)
    before, kept = (library["before"], library["kept"]) if library else (folder, "")
    if before and not is_placeholder(before.strip("/")):
        before = given.give(FOLDER, before)
    return "/".join(filter(None, (before, kept, name)))


URL = re.compile(
    r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]{1,80})://"
    rf"((?:[^\s\"'`<>\\]|{FORM})++)"
)
HOSTS = {name: listed(words) for name, _, words in rows_of("hosts.txt")}
"""Hosts, and how they end; the file says what each list means."""

MAIL = re.compile(
    r"(?<![\w.+%@/-])([\w.+%-]{1,64}+)@(?!(?:plt|got|GLIBC|GLIBCXX|CXXABI)\b)"
    r"([A-Za-z0-9][\w-]*+(?:\.[\w-]++)*+)(:[~/\w][^\s\"',;)\]>]*+)?"
)
DOTTED = re.compile(r"(?<![\w.@-])[A-Za-z0-9][\w-]*+(?:\.[\w-]++)++(?!\()")
IPV4 = re.compile(
    r"(?<![\w.-])(?<![=~<>]=)(?<![Vv]ersion )(?<![Vv]ersion: )"
    r"(?:\d{1,3}\.){3}\d{1,3}(?![\w-])(?!\.\d)"
)
IPV6 = re.compile(
    r"(?<![\w:.])(?:(?:[0-9A-Fa-f]{1,4}:{1,2}){2,7}[0-9A-Fa-f]{1,4}"
    r"|(?:fe80|f[cd][0-9a-f]{2}|2[0-9a-f]{3})::[0-9A-Fa-f]{1,4})(?![\w:])"
)
MAC = re.compile(
    r"(?<![\w:-])[0-9A-Fa-f]{2}(?:([:-])[0-9A-Fa-f]{2})(?:\1[0-9A-Fa-f]{2}){4}(?![\w:-])"
)

DEFAULT_HOST = re.compile(
    r"(?<![\w-])(?:ip(?:-\d{1,3}){4}|(?:DESKTOP|LAPTOP)-[A-Z0-9]{7})(?![\w-])"
)
"""Default names of machines from EC2 and Windows."""

_NOBODY = frozenset(("127.0.0.1", "0.0.0.0", "255.255.255.255"))


def scrub_urls(text: str, given: Placeholders, names: Names) -> str:
    """A text whose URLs keep their scheme, and the name of a file at the end."""

    def shorten(found: re.Match[str]) -> str:
        scheme, rest = found[1], found[2]
        if scheme.lower() == "file":
            return found[0]  # a path like any other
        authority, _, path = rest.partition("/")
        login, at, host = authority.rpartition("@")
        if host in HOSTS["public"] and not at and "?" not in rest:
            return found[0]
        if login:
            names.user(login.partition(":")[0])
            if ":" in login:
                names.secret(login.partition(":")[2])
        bare, colon, port = host.partition(":")
        shown = bare if bare in HOSTS["known"] else names.host(bare) if bare else ""
        return f"{scheme}://{shown}{colon}{port if port.isdigit() else ''}{tail(path)}"

    def tail(path: str) -> str:
        folder, _, name = path.partition("?")[0].partition("#")[0].rpartition("/")
        if not path:
            return ""
        if is_placeholder(path) or (
            path == f"{folder}/{name}" and is_placeholder(folder)
        ):
            return f"/{path}"
        end = f"/{name}" if FILE.fullmatch(name) else ""
        return f"/{given.give(FOLDER, f'//{path}')}{end}"

    return URL.sub(shorten, text) if "://" in text else text


def scrub_mails(text: str, given: Placeholders, names: Names) -> str:
    """A text without e-mail addresses, and without the `user@host:path` of ssh."""

    def hide(found: re.Match[str]) -> str:
        user, host, path = found.groups()
        if not path and not _is_host(host):
            return found[0]
        names.user(user)
        names.host(host)
        return given.give("mail", found[0])

    return MAIL.sub(hide, text) if "@" in text else text


def scrub_hosts(text: str, names: Names) -> str:
    """A text without IP and MAC addresses, and without hosts that have a domain."""
    if "." in text:
        text = DOTTED.sub(lambda m: names.host(m[0]) if _is_host(m[0]) else m[0], text)
        text = IPV4.sub(lambda m: names.host(m[0]) if _is_address(m[0]) else m[0], text)
    if ":" in text:
        text = IPV6.sub(lambda m: names.host(m[0]) if _is_address(m[0]) else m[0], text)
    if "-" in text:
        text = DEFAULT_HOST.sub(lambda m: names.host(m[0]), text)
    if text.count(":") > 4 or text.count("-") > 4:
        text = MAC.sub(lambda m: names.host(m[0]), text)
    return text


def _is_host(run: str) -> bool:
    """Whether words joined by dots name a host; `torch.nn.functional` does not."""
    labels = run.split(".")
    last = labels[-1].lower()
    if len(labels) < 2 or run in HOSTS["public"] | HOSTS["known"] or not all(labels):
        return False
    if last in HOSTS["sure"]:
        return True
    mixed = any(not label.isalpha() and not label.isdigit() for label in labels[:-1])
    if last in HOSTS["inside"]:
        return mixed and "_" not in run
    if last not in HOSTS["likely"] or "_" in run or not run.islower():
        return False
    return "-" in labels[-2] or (len(labels) > 2 and mixed)


def _is_address(text: str) -> bool:
    if ":" not in text:
        return text not in _NOBODY and all(int(part) < 256 for part in text.split("."))
    with suppress(AddressValueError):
        return bool(IPv6Address(text))
    return False
