"""What all else is about: the columns of a Trace, what its slices are, and the report of how it
was read."""

__all__ = [
    "arguments",
    "callbacks",
    "categories",
    "collectives",
    "columns",
    "combined",
    "errors",
    "events",
    "ids",
    "intervals",
    "joined",
    "memo",
    "op_names",
    "pool",
    "report",
    "short_lists",
    "variables",
]
