"""The origin of work in the program: modules, annotations, Python frames, phases.
Backward work belongs to its forward op.
"""
