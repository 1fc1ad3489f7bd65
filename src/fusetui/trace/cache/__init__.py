"""Opens a file again in a fraction of the time, by keeping its Trace in the user's
cache folder.

An entry belongs to one path, and is used only if size, modification time, head and tail
of the file are unchanged. Failures here are never reported: without a cache the file is
read.
"""

from fusetui.trace.cache.entry import CacheRecord, Entry, entry_for, record_for, tidy

__all__ = ["CacheRecord", "Entry", "entry_for", "record_for", "tidy"]
