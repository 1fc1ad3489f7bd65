"""The examples of ranks.md: a real job of four processes on this machine, read in three
ways.

python -P docs/make_ranks.py [FOLDER with the four ranks of a DLRM step, for that
example alone]

Captures a job with benchmarks/gloo_job.py (needs torch), reads it here, on a Dask
scheduler with two workers, and from an S3 server (moto), all on 127.0.0.1, and puts
what was printed into the page.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.pages import put
from tests.ports import free_port, wait_for_port

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "ranks.md"
PYTHON = [sys.executable, "-P"]
FUSETUI = [*PYTHON, "-m", "fusetui"]
WIDTH = "100"
S3 = {
    "AWS_ACCESS_KEY_ID": "a",
    "AWS_SECRET_ACCESS_KEY": "b",
    "AWS_DEFAULT_REGION": "us-east-1",
}


def main() -> None:
    if sys.argv[1:]:
        told = printed(Path(sys.argv[1]), "ranks", ".")
        put_console("dlrm", f"$ fusetui ranks dlrm_ranks/\n{told}")
        return

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = folder / "traces"
        command = [*PYTHON, str(ROOT / "benchmarks" / "gloo_job.py"), str(job)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        here = printed(folder, "ranks", "traces/")
        put_console("one machine", f"$ fusetui ranks traces/\n{here}")

        with cluster() as port:
            where = f"dask://127.0.0.1:{port}"
            there = printed(folder, "ranks", "traces/", "--on", where)
            put_console(
                "dask",
                f"$ fusetui ranks traces/ --on dask://HOST:PORT\n{same(there, here)}",
            )

        with bucket(job) as endpoint:
            pattern = "s3://job/*.json"
            remote = printed(folder, "ranks", pattern, AWS_ENDPOINT_URL=endpoint, **S3)
            put_console("s3", f"$ fusetui ranks '{pattern}'\n{same(remote, here)}")


def printed(folder: Path, *arguments: str, **more: str) -> str:
    """What a command prints, without a cache."""
    own = {
        "COLUMNS": WIDTH,
        "FUSETUI_CACHE": "off",
        "PYTHONPATH": str(ROOT / "src"),
        **more,
    }
    run = subprocess.run(
        [*FUSETUI, *arguments],
        cwd=folder,
        env=os.environ | own,
        capture_output=True,
        text=True,
    )
    if run.returncode:
        raise RuntimeError(run.stderr + run.stdout)

    return run.stdout.rstrip()


def same(text: str, here: str) -> str:
    """The first lines, when all of it is what the local run printed."""
    return "... the same, line for line" if text == here else text


@contextmanager
def cluster() -> Iterator[int]:
    """The port of a scheduler with two workers."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    with (
        running(
            "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port)
        ),
        running(
            "distributed.cli.dask_worker", address, "--nworkers", "2", "--nthreads", "1"
        ),
    ):
        wait_for_port(port)
        yield port


@contextmanager
def bucket(job: Path) -> Iterator[str]:
    """The endpoint of an S3 server with the files in the bucket `job`."""
    import fsspec

    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    with running("moto.server", "-H", "127.0.0.1", "-p", str(port)):
        wait_for_port(port)
        os.environ.update(S3, AWS_ENDPOINT_URL=endpoint)
        system = fsspec.filesystem("s3")
        system.mkdir("job")
        for path in sorted(job.iterdir()):
            system.pipe(f"job/{path.name}", path.read_bytes())
        yield endpoint


@contextmanager
def running(*module: str) -> Iterator[None]:
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        [*PYTHON, "-m", *module], stdout=quiet, stderr=quiet
    ) as process:
        try:
            yield
        finally:
            process.terminate()


def put_console(name: str, text: str) -> None:
    """Into the page, as the example of this name."""
    put(PAGE, name, f"```console\n{text}\n```", __file__)


if __name__ == "__main__":
    main()
