"""Reads the .pftrace of torch's CUPTI monitor into columns. `reading` is the door (see
formats.py); the rest is private. docs/formats.md says what such a file holds."""
