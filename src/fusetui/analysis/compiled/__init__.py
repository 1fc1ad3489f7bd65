"""Finds the Python lines behind a compiled kernel, with or without a compile log.

    regions.py       compiled regions, calls of graphs and of kernels in a trace
    graphs.py        which graph of the log each call is of
    kernels.py       which call in the generated wrapper each kernel is of
    lines.py         the lines of Python behind a call
    breaks.py        graph breaks, and the time between the regions that they divide
    compilations.py  what was compiled when, and which guard failed
    remedies.py      what would avoid compilations, where the log proves it
    answer.py        all of it as one answer
    source.py        everything about the source of one slice
    finding.py       where the log of a trace is

model.py has the records. Nothing is joined by the name of a kernel alone, because names
recur in other graphs. What cannot be joined is counted, with the reason.
"""
