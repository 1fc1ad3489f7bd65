"""Regular expressions with a time limit. Python's cannot be interrupted, so another process runs
them: a pattern may take exponential time, and the names come from a file of somebody else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.questions.query import WrongQuery

SECONDS = 2.0
PROGRAM = """
import json, re, sys
pattern, names = json.load(sys.stdin)
search = re.compile(pattern, 0 if pattern != pattern.lower() else re.IGNORECASE).search
print(json.dumps([bool(search(name)) for name in names]))
"""


def matching(pattern: str, names: Sequence[str], seconds: float = SECONDS) -> NDArray[np.bool_]:
    """Which names some part of matches. Raises WrongQuery if it takes longer than `seconds`."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", PROGRAM],
            input=json.dumps([pattern, list(names)]),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise WrongQuery(f"/{pattern}/ takes longer than {seconds:g} s: make it simpler") from None
    except (subprocess.CalledProcessError, OSError) as error:
        raise WrongQuery(f"/{pattern}/ cannot be searched for: {error}") from None
    return np.array(json.loads(done.stdout), dtype=np.bool_)
