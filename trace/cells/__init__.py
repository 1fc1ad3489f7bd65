"""What each cell of a line of the timeline shows, in a few binary searches."""

__all__ = [
    "counters",
    "raster",
]
