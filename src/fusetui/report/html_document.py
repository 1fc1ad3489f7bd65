"""HTML documents whose policy forbids the browser everything except our style and
script (Content Security Policy, level 3)."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape

from fusetui.text.printable import printable


def text(value: str) -> str:
    """Return a text from a trace as HTML, escaped, without control characters."""
    return escape(printable(value))


def document(
    title: str, body: str, style: str, script: str = "", light: bool | None = None
) -> str:
    """Return a whole HTML document. `body`, `style` and `script` are HTML, CSS and
    JavaScript; nothing else may be loaded or run.

    `light` is whether the page is light (True) or dark (False); None leaves it to the
    browser.
    """
    policy = f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src {_hash_source(style)}"
    script_element = ""
    if script:
        policy += f"; script-src {_hash_source(script)}"
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


def _hash_source(content: str) -> str:
    """Return the expression by which a content security policy allows this style or
    script: its hash."""
    digest = b64encode(sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"
