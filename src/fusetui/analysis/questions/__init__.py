"""Questions about one trace: totals, groups, busy and idle time, launches, counters,
searches."""
