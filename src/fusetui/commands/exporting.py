"""Reports of Nsight Systems: exported by nsys, if it is there and the user wants it, into the
folder of the cache, where the export is found again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path

from fusetui.commands.errors import CommandError, say
from fusetui.trace.cache.folder import cache_folder

REPORT = ".nsys-rep"


def exported(path: str) -> str:
    """The export of a report; of any other file, and where nothing can be exported, the path. Asks
    before it exports. Raises CommandError if nsys fails."""
    if not path.endswith(REPORT) or not os.path.isfile(path) or (place := _place(path)) is None:
        return path
    if not place.is_file():
        nsys = shutil.which("nsys")
        if nsys is None or not sys.stdin.isatty() or not _wanted(path, place):
            return path
        _export(nsys, path, place)
    return str(place)


def _place(path: str) -> Path | None:
    """A file for each state of a report; None if the cache is off."""
    folder = cache_folder()
    if folder is None:
        return None
    state = os.stat(path)
    told = f"{os.path.realpath(path)}\0{state.st_size}\0{state.st_mtime_ns}"
    hashed = blake2b(os.fsencode(told), digest_size=8).hexdigest()
    return folder / "nsys" / f"{Path(path).stem}-{hashed}.sqlite"


def _wanted(path: str, place: Path) -> bool:
    say(f"{path} is a report of Nsight Systems. Export it with nsys to {place}? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _export(nsys: str, path: str, place: Path) -> None:
    part = place.with_suffix(".part.sqlite")
    command = [nsys, "export", "--type", "sqlite", "--force-overwrite", "true", "--output"]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [*command, str(part), os.path.abspath(path)], stdout=sys.stderr, check=False
        )
        if done.returncode == 0:
            part.replace(place)
    except OSError as error:
        raise CommandError(f"nsys cannot export {path}: {error.strerror}.") from None
    finally:
        part.unlink(missing_ok=True)
    if done.returncode != 0:
        raise CommandError(f"nsys could not export {path}: it ended with {done.returncode}.")
    say(f"{place} is the export; it stays there until you remove it.")
