"""The map names files that exist, and every room."""

from __future__ import annotations

import re

from tests.places import ROOT

TEXT = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
FOLDERS = ("tui", "capture", "kernels", "src/fusetui")


def test_every_file_that_it_names_exists() -> None:
    paths = [
        path.as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")
    ]
    named = {name for name in re.findall(r"[\w/]+\.py", TEXT) if "NAME" not in name}
    assert not {
        name for name in named if not any(path.endswith(f"/{name}") for path in paths)
    }


def test_every_room_is_on_the_map() -> None:
    doors = (
        path for folder in FOLDERS for path in (ROOT / folder).rglob("__init__.py")
    )
    rooms = {door.parent.name for door in doors} - {"fusetui", "rules"}
    assert not {
        room
        for room in rooms
        if not re.search(rf"(^|  +){room}  |`{room}`", TEXT, re.M)
    }
