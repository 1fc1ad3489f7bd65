"""A memory snapshot: who holds what at which moment, exact at every event, and why it
ran out.

    answer.memory(snapshot, at)   all that the command reports -> MemoryAnswer

    history.histories(snapshot)   what was allocated, active and reserved after each event
    evidence.evidence(stacks)     what the frames of each stack imply
    categories.categories(...)    what kind each allocation is; unknown without evidence

Bytes are those asked for. An event is a row of Events, -1 the time before the first.
Answers are frozen records without a sentence in them.
"""
