"""What hardware and the names of kernels mean: decoded names, kinds of work, peaks and
bounds."""
