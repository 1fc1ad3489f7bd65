"""A real job of several processes on this machine, one of which is late at a known
place.

    python -P benchmarks/gloo_job.py OUT [--ranks 4] [--late 2] [--delay-ms 50] [--steps
    6]

Every rank trains a small model with gradients averaged by gloo, on the CPU, and writes
OUT/rankN.json. The late rank sleeps in `load_batch` of every step: `fusetui ranks OUT`
must name the rank and the place.
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from pathlib import Path

RANKS, LATE, DELAY_MS, STEPS = 4, 2, 50.0, 6
WIDTH, BATCH = 256, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, default=RANKS)
    parser.add_argument("--late", type=int, default=LATE, help="the rank that is late")
    parser.add_argument("--delay-ms", type=float, default=DELAY_MS)
    parser.add_argument("--steps", type=int, default=STEPS)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    given = (
        asked.ranks,
        free_port(),
        asked.out,
        asked.late,
        asked.delay_ms / 1e3,
        asked.steps,
    )
    import torch.multiprocessing as processes  # once: the ranks are forked

    processes.start_processes(one_rank, given, nprocs=asked.ranks, start_method="fork")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def one_rank(
    rank: int, ranks: int, port: int, out: Path, late: int, delay_s: float, steps: int
) -> None:
    """One process of the job; writes its trace."""
    import torch
    from torch import distributed
    from torch.profiler import ProfilerActivity, profile, record_function, schedule

    torch.set_num_threads(1)
    where = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", where, rank=rank, world_size=ranks)
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    plan = schedule(wait=0, warmup=2, active=steps, repeat=1)
    activities = [ProfilerActivity.CPU]
    path = str(out / f"rank{rank}.json")

    def write(done: profile) -> None:
        done.export_chrome_trace(path)

    with profile(
        activities=activities, schedule=plan, record_shapes=True, on_trace_ready=write
    ) as profiler:
        for _ in range(steps + 2):
            with record_function("load_batch"):
                batch = torch.randn(BATCH, WIDTH)
                if rank == late:
                    time.sleep(delay_s)
            with record_function("forward"):
                loss = model(batch).square().mean()
            loss.backward()
            with record_function("average_gradients"):
                for weight in model.parameters():
                    distributed.all_reduce(weight.grad)
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
