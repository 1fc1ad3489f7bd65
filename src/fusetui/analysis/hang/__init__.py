"""Why a job hangs, from the dumps of torch's flight recorder: which rank is missing,
what it issued last, and which ranks wait for it.

`answer.why_it_hangs` is the door; docs/hang.md defines every value.
"""
