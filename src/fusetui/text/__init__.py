"""Text for users: figures with units, text cut to a width, tables, and characters that no terminal
interprets."""

__all__ = [
    "cutting",
    "figures",
    "markdown",
    "printable",
    "tables",
    "times",
    "toml",
    "units",
    "urls",
]
