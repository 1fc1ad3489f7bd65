"""Writes docs/reference.md from the code: commands, options, keys.

make reference
"""

from __future__ import annotations

import os
from pathlib import Path

from fusetui.tui.commands import Where, commands_of, key_text

from fusetui.arguments import COMMANDS, EXIT_CODES, command_parsers

TARGET = Path(__file__).parent / "reference.md"
WIDTH = 90
HEAD = """# Reference

This page is made from the code by `make reference`.

Data goes to stdout, talk to stderr; what went wrong is one sentence.

## Exit codes

| code | meaning |
|---|---|
{codes}

## Commands
"""
PLACES: dict[Where, str] = {"timeline": "In the timeline", "app": "Everywhere"}


def reference() -> str:
    """The whole page."""
    os.environ["COLUMNS"] = str(WIDTH)
    parsers = command_parsers()
    codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
    texts = [HEAD.format(codes=codes)]
    for name in COMMANDS:
        texts.append(f"### fusetui {name}\n\n```\n{parsers[name].format_help()}```\n")
    texts.append("## Keys\n")
    for where, title in PLACES.items():
        texts.append(f"### {title}\n\n| keys | what | |\n|---|---|---|\n{_rows(where)}\n")
    return "\n".join(texts)


def _rows(where: Where) -> str:
    return "\n".join(
        f"| {' '.join(f'`{key_text(key)}`' for key in c.keys)} | {c.title} | {c.help} |"
        for c in commands_of(where)
    )


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
    print(f"docs/{TARGET.name}")
