"""Our Triton kernels and their gradients: the arithmetic, run by Triton's
interpreter."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not find_spec("torch"), reason="needs torch"),
    pytest.mark.skipif(
        not find_spec("triton"), reason="needs triton: pip install 'fusetui[triton]'"
    ),
]
SCRIPT = Path(__file__).with_name("interpreted.py")


def test_kernels_and_their_gradients_equal_the_reference_in_float64() -> None:
    """The interpreter must be chosen before triton is imported, so a process of its own
    runs them; the traceback names the property that does not hold."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-P", str(SCRIPT)]
    done = subprocess.run(
        command,
        env=environment,
        check=False,
        timeout=300,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
