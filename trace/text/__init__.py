"""What people read: figures with units, text that fits a width, tables, and characters that no
terminal obeys."""

__all__ = [
    "cutting",
    "figures",
    "markdown",
    "printable",
    "tables",
    "times",
]
