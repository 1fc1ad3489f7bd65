"""One text of a trace -> the same without private data. A text is any string of the JSON, decoded;
its context does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from fusetui.trace.scrub.addresses import scrub_hosts, scrub_mails, scrub_urls
from fusetui.trace.scrub.names import Names
from fusetui.trace.scrub.paths import scrub_path, scrub_paths
from fusetui.trace.scrub.placeholders import Placeholders
from fusetui.trace.scrub.settings import scrub_commands, scrub_secrets, scrub_settings

OF_NCCL = re.compile(r"(?m)^([\w.-]{1,255}+):\d++:\d++ \[\d++\] NCCL")
OF_ID = re.compile(r"\buid=\d++\(([^()\s]{1,64}+)\)")
HOME = re.compile(
    r"(?:[/\\](?:home|Users)[/\\]{1,2}+|torchinductor_|pytest-of-|(?<![\w~])~(?=[A-Za-z][\w.-]{0,64}+/))"
    r"([^/\\\s\"'`;:,<>|*?()]{1,64}+)",
    re.IGNORECASE,
)
ACCOUNT = re.compile(r"(?:<user\d+>|[\w.+-]{1,64}+)@(?:<host\d+>|[\w.-]{1,200}+)")


ROUNDS = 8  # more than three were never needed


class Machine(msgspec.Struct, frozen=True):
    """Names that are known to be private before a text is read."""

    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


class Texts:
    """The texts of one file. Names are learnt from all of them before the first is scrubbed."""

    def __init__(self) -> None:
        self.given = Placeholders()
        self.names = Names(self.given)

    def expect(self, machine: Machine) -> None:
        """Learns names that are private wherever they occur."""
        for kind, names in (
            ("user", machine.users),
            ("host", machine.hosts),
            ("secret", machine.secrets),
        ):
            for name in names:
                self.names.expect(kind, name)

    def learn(self, text: str) -> str:
        """The text without what its own form reveals; names in that are learnt."""
        self.names.see(text)
        return self._settled(text, self._by_form)

    def scrub(self, text: str) -> str:
        """The text without private data."""
        return self.finish(self.learn(text))

    def finish(self, learnt: str) -> str:
        """The result of `learn`, without the names that were learnt."""
        return self._settled(learnt, self._by_name)

    def _settled(self, text: str, change: Callable[[str], str]) -> str:
        """The text, changed until nothing changes any more: a placeholder may delimit a word, so
        that what is next to it is recognized."""
        for _ in range(ROUNDS):
            before, text = text, change(text)
            if text == before:
                break
        return text

    def _by_name(self, text: str) -> str:
        found = self.names.scrub(text)
        if "@" in found and ("<user" in found or "<host" in found):
            found = ACCOUNT.sub(self._account, found)
        return found if found == text else self._settled(found, self._by_form)

    def _by_form(self, text: str) -> str:
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
        if "NCCL" in text:
            for found in OF_NCCL.finditer(text):
                self.names.host(found[1])
        if "uid=" in text:
            for found in OF_ID.finditer(text):
                self.names.user(found[1])

    def _account(self, found: re.Match[str]) -> str:
        return self.given.give("mail", found[0]) if "<" in found[0] else found[0]
