"""The work of the op that launched a kernel, and how efficiently the kernel did it.

`row.work_of` returns the work, `row.remarks` anything unusual, `row.describe` one line
for users. A figure is None if anything that it depends on is unknown.
"""
