"""Fixtures that many tests share: small traces, written as files and opened."""

from __future__ import annotations

import compileall
import gc
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from tests.corpus.files import NAMES, make_corpus
from tests.corpus.fixtures import any_export, any_of, any_snapshot  # noqa: F401
from tests.places import ROOT
from tests.rewriting import rewrite_share

from fusetui.trace import Trace, open_trace

# `fuzz` and `docs.lessons` stand at the root, which comes last: so none of its folders
# hides an installed module
sys.path.append(str(ROOT))

EXAMPLES = int(os.environ.get("FUSETUI_EXAMPLES", "30"))  # per property
# slow machines
settings.register_profile("fusetui", max_examples=EXAMPLES, deadline=None)
settings.load_profile("fusetui")


gc.disable()  # while tests are collected: what they are made of stays


def pytest_collection_finish() -> None:
    """The collector passes over what was made so far: thousands of tests and their
    modules, at which each of its full rounds would look in vain, for 0.4 s."""
    gc.freeze()
    gc.enable()


def pytest_configure() -> None:
    if os.environ.get("FUSETUI_LAPTOP"):
        from tests.laptops import simulate

        simulate()


@pytest.fixture(autouse=True)
def _subnormal_floats() -> None:
    """A compiled kernel that is loaded (-ffast-math) has the processor replace floats
    below 2e-308 by zero from then on, in tests that follow as well."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_flush_denormal"):
        torch.set_flush_denormal(False)


Events = Sequence[dict[str, Any]]
PACKAGES = ("src", "capture", "kernels", "sample_traces", "tui")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compiles the package once, for the hundreds of processes that tests start, and
    makes the corpus."""
    worker = getattr(session.config, "workerinput", None)
    if worker is not None:  # of pytest-xdist
        number = int(worker["workerid"].removeprefix("gw"))
        rewrite_share(session.config, number, worker["workercount"])
        return
    for package in PACKAGES:
        compileall.compile_dir(ROOT / package, quiet=2)
    make_corpus()


any_trace = any_of(*NAMES)


@pytest.fixture(autouse=True, scope="session")
def own_surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps tests, and processes they start, away from the user's cache and logs, and
    hides the size of the terminal that they were started from. Each uses one core:
    others run beside it."""
    with pytest.MonkeyPatch.context() as patch:
        cache = str(tmp_path_factory.mktemp("cache"))
        patch.setenv("FUSETUI_CACHE", cache)
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("FUSETUI_KEYS", "off")
        patch.setenv("FUSETUI_CONFIG", "off")
        patch.setenv("FUSETUI_KEPT", "off")
        for name in ("COLUMNS", "LINES"):
            patch.delenv(name, raising=False)
        patch.setenv("OMP_NUM_THREADS", "1")
        # else each compilation starts processes that import torch for ten seconds
        patch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        yield
        assert os.environ["FUSETUI_CACHE"] == cache, (
            "a command run in this process turned it off"
        )


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str | bytes], Path]:
    """Writes the text of a trace to a file."""

    def to_file(text: str | bytes) -> Path:
        path = tmp_path / "trace.json"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return to_file


@pytest.fixture
def trace_of(write: Callable[[str | bytes], Path]) -> Callable[..., Trace]:
    """Opens events (or the text of a whole file) as a trace; keywords become top-level
    keys."""

    def opened(events: Events | str | bytes, **keys: Any) -> Trace:
        if isinstance(events, str | bytes):
            return open_trace(str(write(events)))
        return open_trace(str(write(json.dumps({**keys, "traceEvents": list(events)}))))

    return opened


@pytest.fixture
def event() -> Callable[..., dict[str, Any]]:
    """A slice; by default a CPU op of 1 us on thread 1."""

    def make(
        name: str = "aten::a", ts: object = 0, dur: object = 1, **more: Any
    ) -> dict[str, Any]:
        plain = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1}
        return {**plain, "name": name, "ts": ts, "dur": dur, **more}

    return make


@pytest.fixture
def launched(
    event: Callable[..., dict[str, Any]],
) -> Callable[..., list[dict[str, Any]]]:
    """A launch call and its kernel on GPU 0, stream 7."""

    def make(
        number: int, ts: int, kernel_ts: int, dur: int = 10, name: str = "k"
    ) -> list[dict[str, Any]]:
        args = {"correlation": number}
        return [
            event("cudaLaunchKernel", ts, 2, cat="cuda_runtime", args=args),
            event(name, kernel_ts, dur, cat="kernel", pid=0, tid=7, args=args),
        ]

    return make
