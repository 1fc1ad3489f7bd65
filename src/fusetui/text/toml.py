"""TOML files that users write: settings and keys."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from fusetui import Error

MAX_FILE_BYTES = 1 << 20


class WrongFileError(Error):
    """One plain sentence: why it cannot be used."""


def read_text(path: Path) -> str:
    """Read a text file in UTF-8, without its byte order mark.

    Raises FileNotFoundError if there is none, and WrongFileError if it cannot be read,
    is no regular file or is larger than 1 MiB.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise WrongFileError(f"{path} is not a file.")
        with path.open("rb") as file:
            # one byte more tells whether it is too large
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise WrongFileError(f"{path} is larger than 1 MiB.")
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise  # the caller decides whether the file may be missing
    except (OSError, UnicodeDecodeError) as error:
        raise WrongFileError(f"{path} cannot be read: {error}.") from None


def table_in(text: str, path: object) -> dict[str, Any]:
    """Parse a TOML text into its keys and values.

    Args:
        text: The text.
        path: What sentences call it. Raises WrongFileError if the text is not valid.
    """
    import tomllib  # only where there is a file

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise WrongFileError(f"{path} is not valid TOML: {error}.") from None
    except RecursionError:
        raise WrongFileError(f"{path} is nested too deeply.") from None
    except ValueError:  # of int(), which takes 4,300 digits
        raise WrongFileError(
            f"{path} contains a number with too many digits."
        ) from None
