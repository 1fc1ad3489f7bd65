"""Reads an export of Nsight Systems, a SQLite database, into columns. `reading` is the
door (see formats.py); the rest is private."""
