"""A zip with one trace in it."""

from __future__ import annotations

import shutil
from typing import IO
from zipfile import BadZipFile, ZipFile, ZipInfo

from fusetui.trace.model.errors import CannotRead, NotATrace
from fusetui.trace.read.unpack import GIB, LIMIT, limit_for

ENDINGS = (".json", ".json.gz", ".json.zst")
CHECKPOINT = "data.pkl"  # torch.save writes one into its zip
PIECE = 1 << 20  # bytes that are copied at once
SHOWN = 4  # names in a message


class Archive:
    """An open zip. Raises CannotRead if it is damaged, NotATrace unless it holds one trace."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._path = path
        try:
            self._zip = ZipFile(file)
        except BadZipFile as error:
            raise CannotRead(f"{path} is a damaged zip file ({error}).") from None
        self._trace = self._only_trace()

    @property
    def size(self) -> int:
        """Bytes of the trace as it is in the archive once unpacked."""
        return self._trace.file_size

    def extract(self, room: IO[bytes]) -> None:
        """Writes the trace into `room`. Raises CannotRead if that is not possible."""
        limit = limit_for(self._trace.compress_size)
        if self.size > limit:
            raise CannotRead(
                f"{self._path} unpacks to more than {limit / GIB:.3g} GiB, too much for a trace of "
                f"its size; if it is one, set {LIMIT} to the GiB that it may take."
            )
        try:
            with self._zip.open(self._trace) as packed:
                shutil.copyfileobj(packed, room, PIECE)
        except (BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
            raise CannotRead(
                f"{self._path} is a zip file that cannot be unpacked ({error})."
            ) from None
        room.flush()

    def _only_trace(self) -> ZipInfo:
        names = [one.filename for one in self._zip.infolist()]
        found = [one for one in self._zip.infolist() if _is_trace(one.filename)]
        if len(found) == 1:
            return found[0]
        if found:
            shown = ", ".join(one.filename for one in found[:SHOWN])
            more = ", ..." if len(found) > SHOWN else ""
            raise NotATrace(
                f"{self._path} is a zip file with {len(found)} traces ({shown}{more}): unpack it, "
                "and open one or the folder."
            )
        if any(name.rpartition("/")[2] == CHECKPOINT for name in names):
            raise NotATrace(
                f"{self._path} is a file of torch.save: record a trace with torch.profiler and "
                "prof.export_chrome_trace."
            )
        raise NotATrace(f"{self._path} is a zip file without a trace ({', '.join(ENDINGS)}).")


def _is_trace(name: str) -> bool:
    """Not what macOS adds to an archive."""
    return name.endswith(ENDINGS) and not name.startswith("__MACOSX/")
