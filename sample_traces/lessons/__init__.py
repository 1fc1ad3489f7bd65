"""The lessons: traces with a GPU in them, to learn reading on. Reconstructed, not
recorded.

Their kernel names and most kernel times were published; README.md says which, and where
the other times come from. Its table is the list of them. Needs no torch.
"""

from fusetui.sample_traces import Shelf

_SHELF = Shelf(__name__, "reconstructed, not recorded: ")
names, describe, path = _SHELF.names, _SHELF.describe, _SHELF.path
