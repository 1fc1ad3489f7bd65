"""The kind of inputs that are a Ctrl+C within the first half second of `fusetui
summary`.

A traceback that begins in Python's own start, before the first line of ours, is counted
apart: no program can change what the interpreter does until then.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from fuzz.campaign import Kind
from fuzz.checks import check

import fusetui
from fusetui.sample_traces import lessons

LATEST_S = 0.5  # after the start
PATIENCE_S = 30.0  # until it has ended
FOLDER_OF_OURS = Path(fusetui.__file__).parent
# as a traceback begins the line of a frame of ours; a message may name the folder, too
OUR_FRAME = f'File "{FOLDER_OF_OURS}{os.sep}'
INTERRUPTED = (-signal.SIGINT, 128 + signal.SIGINT)
CODES = (0, *INTERRUPTED)


def attempt(seed: int, number: int) -> str:
    """How it ended."""
    after = Random(f"interrupt {seed}/{number}").uniform(0, LATEST_S)
    program = [
        sys.executable,
        "-P",
        "-m",
        "fusetui",
        "summary",
        str(lessons.path("mlp-eager")),
    ]
    environment = {**os.environ, "FUSETUI_CACHE": "off"}
    with subprocess.Popen(
        program,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        time.sleep(after)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=PATIENCE_S)
    code = running.returncode
    if "Traceback" in said or "Fatal Python error" in said:
        check(OUR_FRAME not in said, "a traceback of ours", said)
        return "traceback of Python's own start"
    check(code in CODES, "exit code", (code, said))
    return f"ended with {code}"


def save(seed: int, number: int, _what: str, place: Path) -> Path:
    after = Random(f"interrupt {seed}/{number}").uniform(0, LATEST_S)
    path = place.with_name(f"{place.name}.txt")
    path.write_text(f"SIGINT after {after:.3f} s\n")
    return path


KIND = Kind("interrupt", attempt, save)
