"""Reads the compile log that torch.compile writes next to a trace.

    records.py   the records of one log as columns, by one pass over its bytes
    files.py     which files of a folder are logs, and nothing outside that folder
    log.py       graphs, compilations and graph breaks of all logs of a folder
    wrapper.py   the calls in the Python wrapper that Inductor generates
    stacks.py    lines of Python in the texts of stacks

TORCH_TRACE=DIR writes the logs (torch/_logging/_internal.py, `trace_structured`). Payloads
stay in their file and are read when they are asked for. Paths in a log are names, never
opened.

`read_compile_log` of `log` is the way in.
"""
