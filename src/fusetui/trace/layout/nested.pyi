from fusetui.trace.model.arrays import Flags, Int32s, Int64s

def trees(
    bounds: Int64s,
    start: Int64s,
    end: Int64s,
    call: Flags,
    depth: Int32s,
    parent: Int32s,
    end_row: Int32s,
    crossing: Flags,
    /,
) -> None:
    """Fills in the last four: the trees of nesting.nest_tracks, parents and ends counted from the
    first row of all, and which rows are not inside their parent, as nesting.arrange has it. All
    are contiguous. Raises ValueError for columns of different lengths."""
