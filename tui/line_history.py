"""The history of the `/` and `:` lines, kept between runs in the user's state
folder."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from fusetui.text.printable import is_printable
from fusetui.trace.new_file import replaced_file
from fusetui.tui.kept_folder import find_kept_folder
from fusetui.tui.state.state import Prompt

FILE = "history.json"
MAX_LINES = 200  # of each kind; of more, the newest are kept
MAX_LINE_CHARS = 1000  # longer lines are not kept
MAX_LINES_BYTES = 1 << 15  # of all lines of a kind, in UTF-8
MAX_FILE_BYTES = 1 << 18
NOT_KEPT_COMMANDS = ("q",)


class KeptLines(msgspec.Struct, frozen=True):
    """The lines of each kind, the oldest first."""

    search: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


class LineHistory:
    """The lines of this run, after those of the runs before, which are read from the
    file when they are first asked for."""

    def __init__(self, file: Path | None) -> None:
        """Create a history of typed lines; `file` is where they are kept between runs,
        None for nowhere. The file is read when lines are first asked for."""
        self._file = file
        self._before: KeptLines | None = None
        self._typed: dict[Prompt, list[str]] = {Prompt.SEARCH: [], Prompt.COMMAND: []}

    def add(self, prompt: Prompt, line: str) -> None:
        """Add a line that was typed into the prompt of a search or command. Other
        prompts have no history."""
        line = line.strip()
        if prompt in self._typed and line not in NOT_KEPT_COMMANDS:
            self._typed[prompt].append(line)

    def lines(self, prompt: Prompt) -> tuple[str, ...]:
        """Return the lines of one prompt, each once, the oldest first. Prompts without
        history give none."""
        if prompt not in self._typed:
            return ()
        if self._before is None:
            self._before = _read_lines(self._file)
        return self._limit_lines(self._before, prompt)

    def keep(self) -> str:
        """Write the lines of this run to the file, after those that are in it by now.
        Return "", or a sentence if that fails."""
        if self._file is None or not any(self._typed.values()):
            return ""
        lines_in_file = _read_lines(self._file)
        kept = KeptLines(
            search=self._limit_lines(lines_in_file, Prompt.SEARCH),
            command=self._limit_lines(lines_in_file, Prompt.COMMAND),
        )
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replaced_file(self._file) as file:
                file.write(msgspec.json.encode(kept))
        except OSError as error:
            why = error.strerror or str(error)
            return f"The typed lines were not saved: {why.lower()}."
        return ""

    def _limit_lines(self, before: KeptLines, prompt: Prompt) -> tuple[str, ...]:
        """Return the lines of one prompt, each once, cut to the limits of this module.
        The newest are kept; lines with control characters are left out."""
        kept = before.search if prompt is Prompt.SEARCH else before.command
        newest_first = dict.fromkeys(reversed([*kept, *self._typed[prompt]]))
        lines: list[str] = []
        byte_count = 0
        for line in newest_first:
            if not line or len(line) > MAX_LINE_CHARS or not is_printable(line):
                continue
            byte_count += len(line.encode())
            if len(lines) == MAX_LINES or byte_count > MAX_LINES_BYTES:
                break
            lines.append(line)
        return tuple(reversed(lines))


def open_saved_history() -> LineHistory:
    """Return the user's history of typed lines. Its file is not read yet."""
    with suppress(RuntimeError):  # there is no home
        folder = find_kept_folder()
        return LineHistory(None if folder is None else folder / FILE)
    return LineHistory(None)


def _read_lines(file: Path | None) -> KeptLines:
    """Return the lines in a history file; none where it is missing, damaged or too
    large."""
    with suppress(OSError, RuntimeError, msgspec.DecodeError, UnicodeDecodeError):
        if file is None or not file.is_file() or file.stat().st_size > MAX_FILE_BYTES:
            return KeptLines()
        return msgspec.json.decode(file.read_bytes(), type=KeptLines)
    return KeptLines()
