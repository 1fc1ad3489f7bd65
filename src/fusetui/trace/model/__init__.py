"""What all else is about: the columns of a Trace, what its slices are, and the report
of how it was read."""
