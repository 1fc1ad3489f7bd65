"""The meaning of hardware and kernel names: decoded names, kinds of work, peaks and
bounds."""
