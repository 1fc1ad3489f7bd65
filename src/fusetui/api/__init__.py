"""fusetui in Python: `import fusetui as ft; t = ft.open("trace.json.gz")`.

What is listed here stays as it is within a major version; docs/python.md describes it.
"""

from fusetui import Error
from fusetui.analysis.questions.query_text import WrongQuery
from fusetui.api.opened import Opened, decode, open, ranks  # noqa: A004
from fusetui.tables.files import MissingPackage, UnknownFormat
from fusetui.tables.public import Table
from fusetui.tables.table import NoColumn
from fusetui.trace.model.errors import CannotRead, NotATrace, TraceError
from fusetui.trace.new_file import CannotWrite

__all__ = [
    "CannotRead",
    "CannotWrite",
    "Error",
    "MissingPackage",
    "NoColumn",
    "NotATrace",
    "Opened",
    "Table",
    "TraceError",
    "UnknownFormat",
    "WrongQuery",
    "decode",
    "open",
    "ranks",
]
