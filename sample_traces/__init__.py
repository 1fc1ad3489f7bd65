"""The traces that ship with fusetui: small, real, without private data. Needs no torch.

The table in README.md is the list of them. The lessons, which are
reconstructed and not recorded, are a package of their own: `fusetui.sample_traces.lessons`.
"""

from fusetui.sample_traces.table import Shelf

_SHELF = Shelf(__name__)
names, describe, path = _SHELF.names, _SHELF.describe, _SHELF.path
