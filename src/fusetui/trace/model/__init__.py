"""The central data model: the columns of a Trace, the categories of its slices, and the
report of how it was read."""
