"""From an export of Nsight Systems, a SQLite database, to columns. `reading` is the
door (see formats.py); the rest is private."""
