from fusetui.api import (
    CannotReadError,
    CannotWriteError,
    MissingPackageError,
    NoColumnError,
    NotATraceError,
    OpenTrace,
    Table,
    TraceError,
    UnknownFormatError,
    WrongQueryError,
    decode,
    hang,
    memory,
    open,  # noqa: A004
    ranks,
)

__version__: str

class Error(Exception): ...

__all__ = [
    "CannotReadError",
    "CannotWriteError",
    "Error",
    "MissingPackageError",
    "NoColumnError",
    "NotATraceError",
    "OpenTrace",
    "Table",
    "TraceError",
    "UnknownFormatError",
    "WrongQueryError",
    "__version__",
    "decode",
    "hang",
    "memory",
    "open",
    "ranks",
]

# Names that programs may still use.
CannotRead = CannotReadError
CannotWrite = CannotWriteError
MissingPackage = MissingPackageError
NoColumn = NoColumnError
NotATrace = NotATraceError
Opened = OpenTrace
UnknownFormat = UnknownFormatError
WrongQuery = WrongQueryError
