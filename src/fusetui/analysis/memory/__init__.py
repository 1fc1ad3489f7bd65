"""Analyzes memory snapshots: what holds memory at which moment, and why memory ran out.

    answer.memory(snapshot, at)   all that the command reports -> MemoryAnswer

    history.histories(snapshot)   what was allocated, active and reserved at each event
    evidence.evidence(stacks)     what the frames of each stack imply
    categories.categories(...)    what kind each allocation is; unknown without evidence

Bytes are those that the program requested. An event is a row of the events, and -1
stands for the time before the first. Answers are frozen records without sentences.
"""
