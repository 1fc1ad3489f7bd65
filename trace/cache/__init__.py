"""Opens a file again in a fraction of the time: its Trace is kept in the user's cache folder.

An entry belongs to one path and is used only while size, time of change, head and tail of that file
are the same. Nothing here ever fails an opening: without a cache the file is read.
"""

from fusetui.trace.cache.entry import Entry, entry_for

__all__ = [
    "Entry",
    "entry_for",
]
