"""URLs, e-mail addresses, hosts with a domain and IP addresses in a text."""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import AddressValueError, IPv6Address

from fusetui.trace.scrub.names import Names
from fusetui.trace.scrub.paths import FILE
from fusetui.trace.scrub.placeholders import FOLDER, FORM, Placeholders, is_placeholder
from fusetui.trace.scrub.secrets import listed

URL = re.compile(
    r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]{1,80})://"
    rf"((?:[^\s\"'`<>\\]|{FORM})++)"
)
PUBLIC_HOSTS = listed(
    """pytorch.org docs.pytorch.org download.pytorch.org docs.nvidia.com developer.nvidia.com
    python.org www.python.org docs.python.org pypi.org www.ubuntu.com help.ubuntu.com
    bugs.launchpad.net www.debian.org www.w3.org numpy.org"""
)
"""Pages of these hosts say nothing about who reads them."""

KNOWN_HOSTS = listed(
    """github.com gitlab.com bitbucket.org huggingface.co hf.co docker.io ghcr.io nvcr.io quay.io
    wandb.ai api.wandb.ai amazonaws.com googleapis.com files.pythonhosted.org"""
)
"""Hosts that everybody uses, but whose paths may identify the user."""

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

_SURE = listed("com org edu gov mil")
_INSIDE = listed("internal local lan corp intranet localdomain lab home cluster")
_LIKELY = listed(
    """net io ai dev co cloud tech svc arpa biz de uk fr cn jp kr ru ch nl se es ca au us eu tw il
    sg br pl cz dk ie nz za mx hk no fi"""
)
_NOBODY = frozenset(("127.0.0.1", "0.0.0.0", "255.255.255.255"))


def scrub_urls(text: str, given: Placeholders, names: Names) -> str:
    """A text whose URLs keep their scheme, and the name of a file at the end."""

    def shorten(found: re.Match[str]) -> str:
        scheme, rest = found[1], found[2]
        if scheme.lower() == "file":
            return found[0]  # a path like any other
        authority, _, path = rest.partition("/")
        login, at, host = authority.rpartition("@")
        if host in PUBLIC_HOSTS and not at and "?" not in rest:
            return found[0]
        if login:
            names.user(login.partition(":")[0])
            if ":" in login:
                names.secret(login.partition(":")[2])
        bare, colon, port = host.partition(":")
        shown = bare if bare in KNOWN_HOSTS else names.host(bare) if bare else ""
        return f"{scheme}://{shown}{colon}{port if port.isdigit() else ''}{tail(path)}"

    def tail(path: str) -> str:
        folder, _, name = path.partition("?")[0].partition("#")[0].rpartition("/")
        if not path:
            return ""
        if is_placeholder(path) or (path == f"{folder}/{name}" and is_placeholder(folder)):
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
    if len(labels) < 2 or run in PUBLIC_HOSTS | KNOWN_HOSTS or not all(labels):
        return False
    if last in _SURE:
        return True
    mixed = any(not label.isalpha() and not label.isdigit() for label in labels[:-1])
    if last in _INSIDE:
        return mixed and "_" not in run
    if last not in _LIKELY or "_" in run or not run.islower():
        return False
    return "-" in labels[-2] or (len(labels) > 2 and mixed)


def _is_address(text: str) -> bool:
    if ":" not in text:
        return text not in _NOBODY and all(int(part) < 256 for part in text.split("."))
    with suppress(AddressValueError):
        return bool(IPv6Address(text))
    return False
