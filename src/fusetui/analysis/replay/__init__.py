"""Predicts the effect of a change: builds a graph of the work of a trace and replays it
with and without the change.

    whatif.whatif(trace, changes, step)
        steps before and after, what limits them -> WhatIf
    path.path(trace)
        the critical path, and what has slack -> Path

    build.build_graph(trace)
        what each piece of work waits for, see graph.py -> Graph
    apply.apply_changes(trace, graph, changes)
        that with changes -> Graph, and notes
    replay.replay(graph)
        when each node begins and ends -> Times; of a graph without a change this is the
        recording, to the nanosecond

`build_graph(trace)` keeps the graph with its trace. Times are in ns; those of a
graph and of its Times count from `Graph.origin_ns`.

The words of this package, and where they are defined: GPU task (items.py), cut,
handoff, mark and engine (thread_cuts.py), node, edge, lane, lag and residual
(graph.py), stretch of the critical path and slack (route.py), draft (draft.py).
"""
