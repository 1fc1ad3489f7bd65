"""CUDA graphs: joins the replays of a trace with the captures that recorded their ops.

This is a step of opening a trace: opening.py finds the captures, join.py joins.
"""
