"""The folder for data that persists between runs."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER_VARIABLE = "FUSETUI_KEPT"  # names another folder, or is `off`
OF_TRACES = "traces"  # below the user's state folder: what is kept about traces


def find_kept_folder(below: str = "") -> Path | None:
    """Return the folder for data that is kept between runs, or None if the user turned
    that off.

    It is the one that the environment names, else `below` in the user's state folder.
    Raise RuntimeError for a user without a home.
    """
    folder_name = os.environ.get(FOLDER_VARIABLE, "")
    if folder_name == "off":
        return None
    if folder_name:
        return Path(folder_name)
    from platformdirs import user_state_path

    return user_state_path("fusetui", appauthor=False) / below
