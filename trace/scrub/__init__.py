"""Takes what is private out of a trace: environment variables, tokens, names of hosts and users,
command lines and folders. Figures stay as they are.

`file.scrub_file` is the door. `found` tells what looks like a secret, and imports little.
"""

__all__ = [
    "document",
    "file",
    "found",
    "texts",
]
