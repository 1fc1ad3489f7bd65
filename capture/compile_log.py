"""Makes torch.compile write its log to a folder, as TORCH_TRACE=DIR does, for `fusetui
compile`.

torch reads TORCH_TRACE when it is imported, so the handler that it would add then is
added here (torch/_logging/_internal.py, LazyTraceHandler). It makes a file once
something is compiled. Provenance has the lines of Python behind each kernel in the log
(INDUCTOR_PROVENANCE=1).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROVENANCE_LEVEL = 1
FOLDER_ENDING = ".compile_log"
"""Of the folder beside a trace: `NAME.compile_log` beside `NAME.json.gz`."""


def folder_beside(trace: Path, name: str) -> Path:
    """Return the folder for the compile log of a trace. `trace` is the folder of the
    trace, and `name` its file name without endings."""
    return trace / f"{name}{FOLDER_ENDING}"


@contextmanager
def logged(folder: Path | None) -> Iterator[None]:
    """Log what torch.compile compiles within the block into `folder`, which is made
    with the first record. With None, or a torch that has no such handler, nothing is
    logged."""
    handler = None if folder is None else _make_handler(folder)
    if handler is None:
        yield
        return

    import torch._inductor.config
    from torch._logging import _internal

    trace_config = torch._inductor.config.trace
    level_before = getattr(trace_config, "provenance_tracking_level", None)
    if level_before is not None:
        trace_config.provenance_tracking_level = max(level_before, PROVENANCE_LEVEL)

    _internal.trace_log.addHandler(handler)

    try:
        yield
    finally:
        _internal.trace_log.removeHandler(handler)
        handler.close()
        if level_before is not None:
            trace_config.provenance_tracking_level = level_before


def _make_handler(folder: Path) -> Any:
    """Return a log handler that writes into a folder, or None if this torch has none."""
    from torch._logging import _internal

    try:
        handler = _internal.LazyTraceHandler(str(folder))
        handler.setFormatter(_internal.TorchLogsFormatter(trace=True))
    except (AttributeError, TypeError):  # not a public part of torch
        return None
    return handler
