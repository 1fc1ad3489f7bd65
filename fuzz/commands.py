"""A command as a user runs it, judged by how it ends and by what reaches the
terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from typing import NamedTuple

from fuzz.checks import check, check_json
from tests.hostile import obeyed

from fusetui.cli import run
from fusetui.commands.errors import CANNOT_TELL, DONE, NO, UNUSABLE, run_guarded

CODES = (DONE, NO, UNUSABLE, CANNOT_TELL)


class Answer(NamedTuple):
    code: int
    out: str
    err: str


def answer(words: Sequence[str]) -> Answer:
    """What a command says in this process. Raises WrongError unless it ends as the
    guide says."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run_guarded(partial(run, list(words)))
    found = Answer(code, out.getvalue(), err.getvalue())
    judge(found, is_json="--json" in words)
    return found


def judge(found: Answer, is_json: bool) -> None:
    """An exit code of the guide, sentences on stderr, and nothing that a terminal
    obeys."""
    check(found.code in CODES, "exit code", found)
    check(
        not obeyed(found.out) | obeyed(found.err), "text that a terminal obeys", found
    )
    said = found.err.splitlines()
    check(all(line.endswith((".", "?")) for line in said), "no sentence", found.err)
    check(said or found.code != UNUSABLE, "exit code 2 without a word", found)
    check(found.out or found.code, "no answer", found)
    if is_json and found.out:
        check_json(found.out)
