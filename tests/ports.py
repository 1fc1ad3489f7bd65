"""Ports of this machine, for the servers that tests and the examples of the
documentation start."""

from __future__ import annotations

import socket
import time

LOCAL = "127.0.0.1"
TRIES, PAUSE_S = 600, 0.05


def free_port() -> int:
    with socket.socket() as free:
        free.bind((LOCAL, 0))
        port: int = free.getsockname()[1]
    return port


def wait_for_port(port: int) -> None:
    """Until somebody listens. Raises TimeoutError."""
    for _ in range(TRIES):
        with socket.socket() as one:
            if one.connect_ex((LOCAL, port)) == 0:
                return
        time.sleep(PAUSE_S)
    raise TimeoutError
