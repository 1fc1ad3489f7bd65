from fusetui.api import (
    CannotRead as CannotRead,
    CannotWrite as CannotWrite,
    Error as Error,
    MissingPackage as MissingPackage,
    NoColumn as NoColumn,
    NotATrace as NotATrace,
    Opened as Opened,
    Table as Table,
    TraceError as TraceError,
    UnknownFormat as UnknownFormat,
    WrongQuery as WrongQuery,
    decode as decode,
    open as open,
    ranks as ranks,
)

__version__: str
