"""Runs a real job of several processes on this machine, one of which is late at a known
place.

    python -P benchmarks/gloo_job.py OUT [--ranks 4] [--late 2] [--delay-ms 50]

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
from typing import NamedTuple

WARM_UP_STEPS = 2
MODEL_WIDTH = 256
BATCH = 64


class GlooJob(NamedTuple):
    """What all processes of the job have in common."""

    out: Path
    ranks: int
    port: int
    late_rank: int
    delay_seconds: float
    steps: int


def main() -> None:
    """Run all processes of the job until they end. The late rank sleeps in each step."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--late", type=int, default=2, help="the rank that is late")
    parser.add_argument("--delay-ms", type=float, default=50.0)
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    job = GlooJob(
        out=args.out,
        ranks=args.ranks,
        port=free_port(),
        late_rank=args.late,
        delay_seconds=args.delay_ms / 1e3,
        steps=args.steps,
    )
    # Here, before the processes are forked, so that it is imported once.
    import torch.multiprocessing as processes

    processes.start_processes(
        run_rank, args=(job,), nprocs=job.ranks, start_method="fork"
    )


def free_port() -> int:
    """Return a TCP port of this machine that no program uses at the moment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def run_rank(rank: int, job: GlooJob) -> None:
    """Run one process of the job: train a small model, average its gradients with gloo,
    and write the trace."""
    import torch
    from torch import distributed
    from torch.profiler import ProfilerActivity, profile, record_function, schedule

    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{job.port}",
        rank=rank,
        world_size=job.ranks,
    )
    model = torch.nn.Sequential(
        torch.nn.Linear(MODEL_WIDTH, MODEL_WIDTH),
        torch.nn.Linear(MODEL_WIDTH, MODEL_WIDTH),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def write_trace(finished: profile) -> None:
        finished.export_chrome_trace(str(job.out / f"rank{rank}.json"))

    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=WARM_UP_STEPS, active=job.steps, repeat=1),
        record_shapes=True,
        on_trace_ready=write_trace,
    ) as profiler:
        for _ in range(WARM_UP_STEPS + job.steps):
            with record_function("load_batch"):
                batch = torch.randn(BATCH, MODEL_WIDTH)
                if rank == job.late_rank:
                    time.sleep(job.delay_seconds)

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
