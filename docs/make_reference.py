"""Writes docs/reference.md from the code: commands, options, keys.

make reference
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from fusetui.arguments import COMMANDS, EXIT_CODES, command_parsers
from fusetui.tui.keys import key_text
from fusetui.tui.registry import by_section
from fusetui.tui.state.action import Action

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


def reference() -> str:
    """The whole page."""
    os.environ["COLUMNS"] = str(WIDTH)
    parsers = command_parsers()
    codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
    texts = [HEAD.format(codes=codes)]
    for name in COMMANDS:
        texts.append(f"### fusetui {name}\n\n```\n{parsers[name].format_help()}```\n")
    texts.append("## Keys\n")
    for title, actions in by_section():
        texts.append(f"### {title}\n\n| keys | what | |\n|---|---|---|\n{_rows(actions)}\n")
    return "\n".join(texts)


def _rows(actions: Iterable[Action]) -> str:
    return "\n".join(
        f"| {' '.join(f'`{key_text(key)}`' for key in a.keys)} | {a.title} | {a.help} |"
        for a in actions
    )


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
    print(f"docs/{TARGET.name}")
