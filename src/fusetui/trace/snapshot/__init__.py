"""Reads a memory snapshot of torch.cuda, a pickle, into columns, without importing or
calling anything that the pickle refers to. `read_snapshot` of `reading` is the door;
the rest is private.

Snapshot
    segments     what the allocator held of the device when the snapshot was taken, in file order
    blocks       the parts of the segments; those of one segment in the order of their addresses
    events       one table per device that has any: what happened, oldest first (a ring: what was
                 before its first entry is not known)
    annotations  where ranges begin and end, such as Optimizer.step#AdamW.step
    stacks       `stack` of any table is an index in here, -1: none was recorded; equal stacks are
                 one, and stacks[i] is the frames of one, innermost first
    strings      `compile_context`, `user_metadata` and names are indices in here
    pools        `pool` is an index of its pairs; (0, 0) is the pool that all share
    settings     allocator_settings of the file, as it is there

Sizes are bytes, times Unix time in us. Everywhere -1 means that the file does not say
it.
"""
