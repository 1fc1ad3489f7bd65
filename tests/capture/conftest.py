"""Fixtures shared by the tests of capture."""

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def fast_timing() -> Iterator[None]:
    """Few samples: these tests look at what is written, not at times."""
    timing = pytest.importorskip("fusetui.capture.step", reason="needs torch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "WARM_UP_NS", 0)
        patch.setattr(timing, "WARM_UP_LIMIT_NS", 0)
        yield


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A file with functions of a user."""
    path = tmp_path / "ways.py"
    path.write_text(CODE)
    return path


CODE = '''
import torch

def build(batch=4, dim=3):
    """Two ways to multiply."""
    x, w = torch.ones(batch, dim), torch.ones(dim, dim, requires_grad=True)
    twice = (2 * w).detach().requires_grad_()
    return {"function": lambda: x @ w, "pair": (torch.matmul, (x, twice))}

def broken():
    def fail():
        raise ValueError("no luck")
    return {"broken": fail, "fine": lambda: torch.ones(2) + 1}

def typed(device, dtype):
    x = torch.ones(2, device=device, dtype=dtype)
    return lambda: x + 1

def leaves():
    raise SystemExit(3)

def nothing():
    return 7

def graph_breaks():
    return torch.compile(lambda x: x + 1, backend="eager"), (torch.ones(2),)

def moves(batch=1):
    import os, tempfile
    os.chdir(tempfile.mkdtemp())
    os.rmdir(os.getcwd())
    return {"fine": lambda: torch.ones(batch) + 1, "broken": lambda: torch.ones(batch) + None}

def forks():
    import os, sys
    if (leaves := os.fork()) == 0:
        sys.exit()
    if comes_back := os.fork():
        codes = [os.waitstatus_to_exitcode(os.waitpid(n, 0)[1]) for n in (leaves, comes_back)]
        forks.__doc__ = str(codes)
    calls = iter(range(10**9))

    def function():
        if next(calls) == 0 and os.fork():
            assert os.wait()[1] == 0
        return torch.ones(2) + 1
    return function
'''
