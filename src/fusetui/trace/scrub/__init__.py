"""Removes private data from a trace: environment variables, tokens, names of hosts and
users, command lines and folders. Figures stay as they are.

`document.scrub_file` is the entry point. `detect` warns of what looks like a secret,
and imports little.
"""
