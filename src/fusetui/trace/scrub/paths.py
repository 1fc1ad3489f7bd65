"""Paths in a text: replaces folders with placeholders, but keeps file names and paths
in site-packages. And URLs, e-mail addresses, hosts with a domain and IP addresses.

`/home/ada/my work/train.py(12): main` -> `dir1/train.py(12): main`
`/opt/venv/lib/python3.12/site-packages/torch/nn/init.py` ->
`dir2/site-packages/torch/nn/init.py`
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address

from fusetui.trace.scrub.names import Names
from fusetui.trace.scrub.secrets import (
    FOLDER,
    FORM,
    Placeholders,
    is_placeholder,
    listed,
    read_rows,
    read_words,
)

PACKAGES = read_words("public_packages.txt")
"""Publicly available packages, of whose files the profiler records what follows
site-packages: `torch/nn/modules/linear.py`. Names that users also give to folders of
their own (datasets, docker) are left out."""

_STOP = r"\s/\\\"'`;:,<>|*?(){}\[\]\x00-\x1f"
"""Characters before which a part of a path ends."""
_PART = rf"[^{_STOP}]++"
_BRACKETED = r"[(\[{](?!\d++[)\]}])[^\s/\\()\[\]{}\"']{0,80}+[)\]}]"
_FOLDER = rf"(?:[^{_STOP}]++|{_BRACKETED})++"
_SEP = r"[/\\]++"
_ENDINGS = {name: words.split() for name, _, words in read_rows("file_endings.txt")}
_ALL_ENDINGS = [*_ENDINGS["code"], *_ENDINGS["others"]]
_ENDED = rf"\.(?:{'|'.join(_ALL_ENDINGS)})(?:\.\d+)*"


def _not_behind_an_ending() -> str:
    """The pattern of a place that does not follow the ending of a file name.

    All alternatives in a lookbehind must have the same length, so there is one for each
    length.
    """
    by_length: dict[int, list[str]] = {}
    for ending in _ALL_ENDINGS:
        by_length.setdefault(len(ending), []).append(ending)
    return "".join(
        rf"(?<!\.(?:{'|'.join(by_length[length])}))" for length in sorted(by_length)
    )


_NO_FILE = _not_behind_an_ending()
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
MAX_BLANKS = 4  # in the last part of a path; with more it is a sentence


def scrub_paths(text: str, given: Placeholders) -> str:
    """A text in which placeholders stand for the folders of all paths. If the whole
    text is one path with spaces, it is treated as such."""
    if "%2" in text:  # %2F is a slash in a URL
        text = ENCODED.sub(lambda match: given.give(FOLDER, match[0]), text)
    if "/" not in text and "\\" not in text:
        return text
    if _is_one_path(text):
        return scrub_path(text, given)
    return PATH.sub(lambda match: _hide_folder(match, given), text)


def scrub_path(path: str, given: Placeholders) -> str:
    """Scrub a text that is one path as a whole. It may contain spaces, and its last
    part may be a folder."""
    with_slashes = path.replace("\\", "/")
    if not with_slashes.strip("/"):
        return path
    return _replace_folder(with_slashes, given)


def _is_one_path(text: str) -> bool:
    """Whether a text with spaces is a single path: `/home/ada/my work`. A long last
    part with many blanks is a sentence."""
    last_part = text.replace("\\", "/").rpartition("/")[2]
    if " " not in text or last_part.count(" ") > MAX_BLANKS or " /" in text:
        return False
    return bool(ROOTED.fullmatch(text)) and not FILE_BEFORE_BLANK.search(text)


def _hide_folder(match: re.Match[str], given: Placeholders) -> str:
    """A matched PATH with a placeholder for its folder. It is kept as it is if it
    reveals nothing, or may be no path at all."""
    path = match[0]
    without_dots = path.rstrip(".") or path  # the end of a sentence
    end = path[len(without_dots) :]
    with_slashes = without_dots.replace("\\", "/")
    if match.lastgroup == "relative":
        is_kept = _is_kept_relative(with_slashes)
    else:
        is_kept = _is_kept_absolute(with_slashes)
    if is_kept:
        return path
    return _replace_folder(with_slashes, given) + end


def _is_kept_relative(path: str) -> bool:
    """Whether a relative path reveals nothing: it is of a public package, or it may be
    no path at all, such as `train/loss`."""
    first_part = path.split("/", 1)[0]
    name = path.rpartition("/")[2]
    is_file = FILE.fullmatch(name) is not None
    if not is_file and not HOME_INSIDE.search(path):
        # words divided by a slash may be anything: 0/1, tokens/s, train/loss
        return True
    return first_part in PACKAGES and CODE.fullmatch(name) is not None


def _is_kept_absolute(path: str) -> bool:
    """Whether an absolute path reveals nothing: a file, or a single character, directly
    in the root folder."""
    folder, _, name = path.rpartition("/")
    is_in_root = not folder.strip("/.")
    return is_in_root and (len(name) < 2 or FILE.fullmatch(name) is not None)


def _replace_folder(path: str, given: Placeholders) -> str:
    """A path with a placeholder for its folder; for all of it if it ends in a folder.
    What follows site-packages is kept, and so is a file name."""
    folder, _, name = path.rpartition("/")
    if not FILE.fullmatch(name) or HOMES.search(folder):
        folder = path.rstrip("/")
        name = ""
    library = LIBRARY.fullmatch(folder)
    private = library["before"] if library else folder
    in_library = library["kept"] if library else ""
    if private and not is_placeholder(private.strip("/")):
        private = given.give(FOLDER, private)
    return "/".join(part for part in (private, in_library, name) if part)


URL = re.compile(
    r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]{1,80})://"
    rf"((?:[^\s\"'`<>\\]|{FORM})++)"
)
HOSTS = {name: listed(words) for name, _, words in read_rows("hosts.txt")}
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
    """A text whose URLs keep only their scheme, known hosts and the name of a file at
    the end."""
    if "://" not in text:
        return text
    return URL.sub(lambda url: _scrub_url(url, given, names), text)


def _scrub_url(url: re.Match[str], given: Placeholders, names: Names) -> str:
    """A matched URL without its login, query, folders and unknown host. Public hosts
    are kept with their path."""
    whole_url = url[0]
    scheme, rest = url.groups()
    if scheme.lower() == "file":
        return whole_url  # a path like any other
    authority, _, path = rest.partition("/")
    login, at_sign, host_and_port = authority.rpartition("@")
    is_public = host_and_port in HOSTS["public"]
    if is_public and not at_sign and "?" not in rest:
        return whole_url
    if login:
        _remember_login(login, names)
    host, colon, port = host_and_port.partition(":")
    if host and host not in HOSTS["known"]:
        host = names.host(host)
    if not port.isdigit():
        port = ""
    scrubbed_path = _scrub_url_path(path, given)
    return f"{scheme}://{host}{colon}{port}{scrubbed_path}"


def _remember_login(login: str, names: Names) -> None:
    """Note the user and the password of a login such as `ada:hunter2`, so that they are
    taken out elsewhere too."""
    user, colon, password = login.partition(":")
    names.user(user)
    if colon:
        names.secret(password)


def _scrub_url_path(path: str, given: Placeholders) -> str:
    """The path of a URL with a placeholder for its folders, beginning with a slash; ""
    for no path. A file name at the end is kept, a query is dropped."""
    if not path:
        return ""
    without_query = path.partition("?")[0].partition("#")[0]
    folder, _, name = without_query.rpartition("/")
    is_folder_scrubbed = path == f"{folder}/{name}" and is_placeholder(folder)
    if is_placeholder(path) or is_folder_scrubbed:
        return f"/{path}"
    end = f"/{name}" if FILE.fullmatch(name) else ""
    return f"/{given.give(FOLDER, f'//{path}')}{end}"


def scrub_mails(text: str, given: Placeholders, names: Names) -> str:
    """A text in which placeholders stand for e-mail addresses and for `user@host:path`
    of ssh."""

    def hide(mail: re.Match[str]) -> str:
        """The placeholder of an address, or of a login on a host with a path."""
        user, host, path = mail.groups()
        if not path and not _is_host(host):
            return mail[0]
        names.user(user)
        names.host(host)
        return given.give("mail", mail[0])

    if "@" not in text:
        return text
    return MAIL.sub(hide, text)


def scrub_hosts(text: str, names: Names) -> str:
    """A text in which placeholders stand for IP and MAC addresses, and for hosts that
    have a domain."""

    def hide(match: re.Match[str]) -> str:
        return names.host(match[0])

    def hide_host(match: re.Match[str]) -> str:
        return names.host(match[0]) if _is_host(match[0]) else match[0]

    def hide_address(match: re.Match[str]) -> str:
        return names.host(match[0]) if _is_machine_address(match[0]) else match[0]

    if "." in text:
        text = DOTTED.sub(hide_host, text)
        text = IPV4.sub(hide_address, text)
    if ":" in text:
        text = IPV6.sub(hide_address, text)
    if "-" in text:
        text = DEFAULT_HOST.sub(hide, text)
    # a MAC address has five of them
    if text.count(":") > 4 or text.count("-") > 4:
        text = MAC.sub(hide, text)
    return text


def _is_host(words: str) -> bool:
    """Whether words joined by dots name a host with a domain. `torch.nn.functional`
    does not; the last word and the form of the others decide."""
    labels = words.split(".")
    if len(labels) < 2 or not all(labels):
        return False
    if words in HOSTS["public"] or words in HOSTS["known"]:
        return False
    *inner_labels, last_label = labels
    ending = last_label.lower()
    if ending in HOSTS["sure"]:
        return True
    # with digits, dashes or other characters in a name
    is_mixed = any(not name.isalpha() and not name.isdigit() for name in inner_labels)
    if ending in HOSTS["inside"]:
        return is_mixed and "_" not in words
    if ending not in HOSTS["likely"] or "_" in words or not words.islower():
        return False
    return "-" in inner_labels[-1] or (len(labels) > 2 and is_mixed)


def _is_machine_address(text: str) -> bool:
    """Whether a text in the form of an IP address is one, and that of a machine.
    Loopback and broadcast addresses are not."""
    if ":" not in text:
        is_of_a_machine = text not in _NOBODY
        return is_of_a_machine and all(int(part) < 256 for part in text.split("."))
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True
