"""fusetui: where the time of a PyTorch program went, in a terminal and in Python.

`import fusetui as ft; t = ft.open("trace.json.gz")`: the names of `fusetui.api`, which
is imported when one of them is first used. `__init__.pyi` lists them for type checkers.
"""

__version__ = "0.1.0"


class Error(Exception):
    """One plain sentence for the user: what is wrong and what to do."""


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

_FORMER_NAMES = {
    "CannotRead": "CannotReadError",
    "CannotWrite": "CannotWriteError",
    "MissingPackage": "MissingPackageError",
    "NoColumn": "NoColumnError",
    "NotATrace": "NotATraceError",
    "Opened": "OpenTrace",
    "UnknownFormat": "UnknownFormatError",
    "WrongQuery": "WrongQueryError",
}
"""Names that programs may still use: each is the same class as the name that it has
now."""


def __getattr__(name: str) -> object:
    """A public name that is not imported yet, or the former name of one."""
    public_name = _FORMER_NAMES.get(name, name)
    if public_name not in __all__:
        raise AttributeError(f"module 'fusetui' has no attribute {name!r}")
    from importlib import import_module  # the command line does without it at first

    return getattr(import_module("fusetui.api"), public_name)


def __dir__() -> list[str]:
    return __all__
