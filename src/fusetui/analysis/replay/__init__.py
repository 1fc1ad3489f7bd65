"""What would change: the work of a trace as a graph, which is replayed with and without a change.

    build.graph_of(trace) -> Graph       graph.py: what each piece of work waits for, in columns
    replay.replay(graph) -> Times        when each node begins and ends; without a change this is
                                         the recording, to the nanosecond

Times are in ns; those of a graph and of its Times count from `Graph.origin_ns`. Answers are frozen
records without a sentence in them.
"""
