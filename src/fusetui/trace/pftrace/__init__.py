"""From the .pftrace of torch's monitor of CUPTI to columns. `reading` is the door (see
formats.py); the rest is private. docs/formats.md says what such a file holds."""
