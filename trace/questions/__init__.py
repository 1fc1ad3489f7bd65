"""Questions about one trace: totals, groups, busy and idle time, launches, counters, searches."""

__all__ = [
    "busy",
    "chain",
    "computing",
    "counters",
    "effective",
    "kernel_groups",
    "launches",
    "matching",
    "memory",
    "missing",
    "note",
    "op_groups",
    "query",
    "queue",
    "search",
    "spread",
    "summary",
    "tally",
    "totals",
    "windows",
]
