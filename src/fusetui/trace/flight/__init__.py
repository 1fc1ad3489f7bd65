"""Reads the dumps of torch's flight recorder, one file per rank, into columns.

A dump holds the last collectives that a rank issued, in a ring: what was before its first
entry is lost. torch writes it as a pickle (protocol 2, plain values only) when a
collective times out, and its debug server answers with the same keys as JSON. Nothing
that a pickle names is ever imported or called.

Source of the format: torch/csrc/distributed/c10d/FlightRecorder.hpp, FlightRecorder.cpp
and, for versions 1.x, ProcessGroupNCCL.cpp (`dump_pickle`, `dump_json`).

`read_dumps` of `reading` is the door.
"""
