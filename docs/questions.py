"""Writes docs/questions.md: questions about real traces, the keys that answer them, and
the screens after these keys.

    FUSETUI_TRACES=folder python -P docs/questions.py

The traces are those of other projects and are not part of this one; see
docs/questions.md.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

from fusetui.tui.app import AppOptions, FusetuiApp
from fusetui.tui.state.action import key_text

TARGET = Path(__file__).with_name("questions.md")
SCREEN_SIZE = (120, 35)  # columns and lines
MAX_LINE_CHARS = 100
HEAD = """# Questions

This page answers five questions about real traces. Each answer takes at most five keys from the
first screen. `docs/questions.py` generates the screens by pressing these keys in the app. The
traces are test data of other projects and do not ship with fusetui.
"""


class Question(NamedTuple):
    """`trace` is the name of a file without `.json.gz`; `keys` are named as Textual
    does; `about` says what the keys show."""

    title: str
    trace: str
    keys: tuple[str, ...]
    about: str


QUESTIONS = (
    Question(
        "What dominates the GPU time of a Qwen1.5 step, and in which module?",
        "h100_Qwen1.5-0.5B",
        ("enter", "l", "enter"),
        "The first screen lists the GPU time by module and by kernel. `Enter` moves "
        "to these lists, `l` to the kernels, and `Enter` to the first kernel in its "
        "table. The pane below shows which op and module launched it.",
    ),
    Question(
        "Why is the GPU idle for half of an OWLv2 step?",
        "h100_owlv2",
        ("e",),
        "The first screen shows the verdict. `e` goes to the longest gap and shows "
        "what the CPU was doing.",
    ),
    Question(
        "Which communication is exposed?",
        "nccl_collectives",
        ("5", "j"),
        "Page 5 lists the findings, with the largest first. The finding about exposed "
        "communication shows how much of it each collective causes. `Enter` shows the "
        "longest call, and `Enter` again shows the next one.",
    ),
    Question(
        "Where is the longest gap of a DeepSeek-R1 decode, and what did the CPU do?",
        "b300_deepseek_r1_decode",
        ("e",),
        "`e` goes to the longest gap, and pressing `e` again goes to the next longest one.",
    ),
    Question(
        "Which kernels of a vLLM decode are matrix products?",
        "mi300_vllm_decode_graph",
        ("3", "t", "space"),
        "`t` groups the kernels by kind, according to their decoded names, so the "
        "groups include products that are named after their tiles. `Space` shows only "
        "the kernels of the first group, and `T` lists every launch of them. The "
        "search `/gemm` also finds them, with the calls that launched them.",
    ),
)


WITHOUT_USER_FILES = {
    "FUSETUI_KEPT": "off",
    "FUSETUI_KEYS": "off",
    "FUSETUI_CONFIG": "off",
}
"""Variables with which the app shows the same screens to every user."""


async def screen(question: Question, folder: Path) -> str:
    """The lines of the screen after the keys; the traces are in `folder`."""
    app = FusetuiApp(AppOptions((str(folder / f"{question.trace}.json.gz"),)))
    async with app.run_test(size=SCREEN_SIZE) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        await pilot.press(*question.keys)
        await app.workers.wait_for_complete()
        await pilot.pause()
        strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)


def section(question: Question, screen_text: str) -> str:
    """The section of the page about a question."""
    keys = " ".join(f"`{key_text(key)}`" for key in question.keys)
    return (
        f"## {question.title}\n\n`fusetui open {question.trace}.json.gz`, then {keys}\n\n"
        f"{fill(question.about, MAX_LINE_CHARS)}\n\n```text\n{screen_text}\n```\n"
    )


def main() -> None:
    os.environ.update(WITHOUT_USER_FILES)
    folder = Path(os.environ["FUSETUI_TRACES"])
    sections = []
    for question in QUESTIONS:
        screen_text = asyncio.run(screen(question, folder))
        sections.append(section(question, screen_text))
    TARGET.write_text("\n".join([HEAD, *sections]), encoding="utf-8")
    print(TARGET)


if __name__ == "__main__":
    main()
