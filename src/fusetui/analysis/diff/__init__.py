"""The diff of two traces: what changed, why, and whether it is real.

`compare.diff` compares, and `report/diff.py` writes the result as text. This file
imports nothing for others: who needs one small module of the package should not have to
load all of them.
"""
