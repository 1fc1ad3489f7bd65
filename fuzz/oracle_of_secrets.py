"""What detect-secrets finds in a text, by its own rules."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

GUESSES = {
    "Base64 High Entropy String",
    "Hex High Entropy String",
    "Public IPv4 (ipv4)",
}
"""Plugins that guess by the entropy alone, and one for what is no secret."""


@cache
def plugins() -> tuple[Any, ...]:
    known: dict[str, Any] = get_mapping_from_secret_type_to_class()
    return tuple(known[kind]() for kind in sorted(known) if kind not in GUESSES)


def detected(text: str) -> Iterator[tuple[str, str]]:
    """Kind and value of each secret, line by line."""
    for line in text.splitlines():
        for plugin in plugins():
            for found in plugin.analyze_line("trace", line):
                yield found.type, found.secret_value or ""
