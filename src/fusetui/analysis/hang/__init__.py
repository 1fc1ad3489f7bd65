"""Why a job hangs, by the dumps of torch's flight recorder: which rank is missing, what
it issued last, and who waits for it.

`answer.why_it_hangs` is the door; docs/hang.md defines every value.
"""
