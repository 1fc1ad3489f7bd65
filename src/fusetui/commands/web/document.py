"""HTML documents: whatever comes from a trace is escaped, and a policy forbids the browser all but
the style and the script that are written here (Content Security Policy, level 3)."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from pathlib import Path

from fusetui.text.printable import printable


def asset(name: str) -> str:
    """A file of this package."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8").strip()


def text(value: str) -> str:
    """What a name is in HTML."""
    return escape(printable(value))


def document(title: str, body: str, style: str, script: str = "", light: bool | None = None) -> str:
    """A whole document around HTML; `light`: always so, or never; None: as the browser has it."""
    scheme = {None: "light dark", True: "light", False: "dark"}[light]
    scripts = f"<script>{script}</script>\n" if script else ""
    policy = "default-src 'none'; base-uri 'none'; form-action 'none'; "
    policy += f"style-src {_hash(style)}" + (f"; script-src {_hash(script)}" if script else "")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="{scheme}">\n'
        f"<title>{text(title)}</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n{body}\n{scripts}</body>\n</html>\n"
    )


def _hash(content: str) -> str:
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
