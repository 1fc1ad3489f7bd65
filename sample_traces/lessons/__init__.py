"""The lessons: traces with a GPU in them, to learn reading on. Reconstructed, not
recorded.

Their kernel names and most kernel times were published; README.md says which, and where
the other times come from. Its table is the list of them. Needs no torch.
"""

from fusetui.sample_traces import TraceCatalog

_CATALOG = TraceCatalog(__name__, note="reconstructed, not recorded: ")
names = _CATALOG.names
describe = _CATALOG.describe
path = _CATALOG.path
