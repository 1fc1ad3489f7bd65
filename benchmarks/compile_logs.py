"""How long a large compile log takes to index, how much memory it needs, and how long
the source of a kernel takes to show.

`python -P benchmarks/compile_logs.py [--mb 200]` writes a log of many graphs into a
temporary folder, in the proportions of real ones: two thirds of the bytes are texts of
graphs and code, one third events of the compiler. Each figure is that of a process of
its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from tests.compile_logs import Kernel, Line, Log, Recording  # noqa: E402

KERNELS_OF_GRAPH = 40
EVENTS_OF_GRAPH = 60
FILLER_LINES = 300  # of the graph as a program, and of others like it


def write_log(folder: Path, megabytes: int) -> int:
    """Write a compile log of about this size and a trace of its last graph. Returns how
    many graphs the log has."""
    graphs = 0
    folder.mkdir(parents=True, exist_ok=True)

    with (folder / "torch_trace.log").open("w", encoding="utf-8") as file:
        while file.tell() < megabytes * 1_000_000:
            file.write(str(_make_graph(graphs)))
            graphs += 1

    ops = [f"triton_poi_fused_add_{number}" for number in range(KERNELS_OF_GRAPH)]

    recording = Recording()
    last = graphs - 1
    for _ in range(20):
        recording.call(f"key{last}", ops, region=f"{last}/0", on_gpu=True)

    recording.write(folder)
    return graphs


def _make_graph(number: int) -> Log:
    """Return the records of one graph: events of the compiler, the graph as a program,
    and its kernels."""
    log = Log()
    region = f"{number}/0"
    for _ in range(EVENTS_OF_GRAPH):
        event = {"name": "pass", "ph": "B", "ts": 1795884410096898.0, "args": {"x": 1}}
        log.record({"chromium_event": {}}, json.dumps(event, indent=0), region)

    kernels = []
    nodes = {}
    for place in range(KERNELS_OF_GRAPH):
        line = Line(100 + place, f"y{place} = x{place} + {place}")
        nodes[f"add_{place}"] = line
        name = f"triton_poi_fused_add_{place}"
        path = f"/tmp/torchinductor_me/k{number}_{place}.py"
        kernels.append(Kernel(name, (line,), (f"add_{place}",), path))

    filler = "\n".join(
        f"    add_{place} = torch.ops.aten.add.Tensor(arg{place}_1, primals_{place})"
        for place in range(FILLER_LINES)
    )
    log.dynamo_graph(nodes, region)

    for name in ("before_pre_grad_graph", "fx_graph_runnable", "after_joint_graph"):
        log.artifact(name, filler, region)

    log.graph(f"key{number}", kernels, region=region)
    return log.metrics(region=region, function=f"f{number}")


def measure(folder: Path) -> dict[str, float]:
    """Return the CPU seconds and the memory that indexing the log, joining its kernels
    and showing their source take in this process."""
    from fusetui.analysis.compiled.finding import find_compile_log
    from fusetui.analysis.compiled.kernels import join_kernels
    from fusetui.analysis.compiled.source import find_source
    from fusetui.trace import open_trace
    from fusetui.trace.model.categories import Role
    from fusetui.tui.layout.source import list_source_lines

    trace = open_trace(str(folder / "trace.json"), cached=False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    log = find_compile_log(trace)
    assert log is not None
    index_s = time.process_time() - begin
    begin = time.process_time()
    assert log.graphs
    join_kernels(trace, log)
    join_s = time.process_time() - begin

    rows = trace.rows_of(Role.KERNEL)
    times = []
    for row in rows[:40].tolist():
        begin = time.process_time()
        source = find_source(trace, log, row)
        assert source is not None
        assert source.lines
        list_source_lines(source)
        times.append(time.process_time() - begin)

    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    return {
        "index_s": index_s,
        "join_s": join_s,
        "source_first_ms": 1000 * times[0],
        "source_worst_ms": 1000 * max(times),
        "memory_mb": (after - before) / 1000,
    }


def main() -> None:
    """Write a log, measure it in a process of its own, and print the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--mb", type=int, default=200)
    options.add_argument("--measure", type=Path)

    arguments = options.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graphs = write_log(folder, arguments.mb)
        megabytes = (folder / "torch_trace.log").stat().st_size / 1_000_000
        command = [sys.executable, "-P", __file__, "--measure", str(folder)]
        finished_process = subprocess.run(
            command, capture_output=True, check=True, text=True
        )
        figures = json.loads(finished_process.stdout)

    print(f"{megabytes:.0f} MB, {graphs} graphs")
    print(f"index: {figures['index_s'] * 50 / megabytes:.2f} s of CPU for each 50 MB")
    print(f"graphs and joins: {figures['join_s']:.2f} s")
    print(f"source: {figures['source_first_ms']:.1f} ms, worst of 40 kernels ", end="")
    print(f"{figures['source_worst_ms']:.1f} ms")
    print(
        f"memory: {figures['memory_mb']:.0f} MB, {figures['memory_mb'] / megabytes:.0%}"
    )


if __name__ == "__main__":
    main()
