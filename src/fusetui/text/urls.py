"""URLs as they may be shown: without passwords and signatures."""

from __future__ import annotations

import re

USER = re.compile(r"(?<=://)[^/\s]*@")
QUERY = re.compile(r"(https?://[^\s?#]{1,4096}\?)[^\s]+", re.IGNORECASE)


def without_credentials(text: str) -> str:
    """The text, in its URLs neither users and passwords nor queries, which may hold signatures.

    >>> without_credentials("https://me:secret@host/a.json?sig=x cannot be read.")
    'https://host/a.json?... cannot be read.'
    """
    if "://" not in text:
        return text
    return QUERY.sub(r"\1...", USER.sub("", text))
