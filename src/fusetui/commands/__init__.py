"""One module per command of the command line; each `run` returns the exit code."""
