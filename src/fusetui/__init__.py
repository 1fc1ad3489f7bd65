"""fusetui: where the time of a PyTorch program went, in a terminal and in Python.

`import fusetui as ft; t = ft.open("trace.json.gz")`: the names of `fusetui.api`, which
is imported when one of them is first used. `__init__.pyi` lists them for type checkers.
"""

__version__ = "0.1.0"


class Error(Exception):
    """One plain sentence for the user: what is wrong and what to do."""


ERRORS = ("CannotRead", "CannotWrite", "MissingPackage", "NoColumn", "NotATrace")
NAMES = (*ERRORS, "TraceError", "UnknownFormat", "WrongQuery", "Opened", "Table")
FUNCTIONS = ("decode", "open", "ranks")


def __getattr__(name: str) -> object:
    if name not in (*NAMES, *FUNCTIONS):
        raise AttributeError(f"module 'fusetui' has no attribute {name!r}")
    from importlib import import_module  # the command line does without it at first

    return getattr(import_module("fusetui.api"), name)
