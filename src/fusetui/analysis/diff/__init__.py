"""The diff of two traces: what changed, why, and whether it is real.

`compare.diff` answers, `report/diff.py` says it. A room imports nothing for its own
sake: who needs one small module of it should not wait for the others.
"""
