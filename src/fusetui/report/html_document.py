"""HTML documents whose policy forbids the browser everything except our style and
script (Content Security Policy, level 3)."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape

from fusetui.text.printable import printable


def text(value: str) -> str:
    """What a name is in HTML."""
    return escape(printable(value))


def document(
    title: str, body: str, style: str, script: str = "", light: bool | None = None
) -> str:
    """A whole document. `body`, `style` and `script` are HTML, CSS and JavaScript;
    `light`: on white (True), on black (False), or as the browser has it (None)."""
    policy = f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src {_hash(style)}"
    script_element = ""
    if script:
        policy += f"; script-src {_hash(script)}"
        script_element = f"<script>{script}</script>\n"
    if light is None:
        scheme = "light dark"
    else:
        scheme = "light" if light else "dark"
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en">\n'
        "<head>\n"
        '<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="{scheme}">\n'
        f"<title>{text(title)}</title>\n"
        f"<style>{style}</style>\n"
        "</head>\n"
        f"<body>\n{body}\n{script_element}</body>\n"
        "</html>\n"
    )


def _hash(content: str) -> str:
    """The source expression of a policy that allows this style or script."""
    digest = b64encode(sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"
