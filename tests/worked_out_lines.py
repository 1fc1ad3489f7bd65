"""Works out once more which lines each kernel of a compiled region came from.

It shares no code with fusetui and goes another way: per call of a graph it aligns the
sequence of recorded ops with the sequence of calls in the wrapper. Run it on a recording:
`python tests/worked_out_lines.py TRACE LOG...` prints a line for each kernel.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple


class Expected(NamedTuple):
    """A kernel of a graph."""

    region: str
    key: str
    handle: str


Found = dict[Expected, tuple[int, frozenset[tuple[str, int]]]]
"""How often each kernel ran, and its lines."""


def opened(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()


class Record(NamedTuple):
    fields: dict[str, Any]
    payload: str

    @property
    def kind(self) -> str:
        if "artifact" in self.fields:
            return str(self.fields["artifact"]["name"])
        return next(iter(self.fields))

    @property
    def region(self) -> str:
        return f"{self.fields.get('frame_id')}/{self.fields.get('frame_compile_id')}"


def records(text: str) -> list[Record]:
    found: list[tuple[dict[str, Any], list[str]]] = []
    for line in text.split("\n"):
        if line.startswith("\t"):
            found[-1][1].append(line[1:])
        elif line:
            found.append((json.loads(line[line.index("] {") + 2 :]), []))
    return [Record(fields, "\n".join(lines)) for fields, lines in found]


class Graph(NamedTuple):
    region: str
    process_text: str
    handles: list[str]  # in the order of calls
    lines: dict[str, frozenset[tuple[str, int]]]


def graphs_of(text: str) -> dict[tuple[str, str], Graph]:
    """By region and key; the last one counts."""
    graphs: dict[tuple[str, str], Graph] = {}
    latest: dict[tuple[str, str], str] = {}
    for record in records(text):
        region = record.region
        latest[region, record.kind] = record.payload
        if not re.fullmatch("fx_graph_cache_(hit|miss|bypass)", record.kind):
            continue
        code = latest[region, "inductor_output_code"]
        handles = re.findall(r"\[Provenance debug handles\] (\S+)", code)
        stacks = json.loads(
            latest[region, "inductor_provenance_tracking_kernel_stack_traces"]
        )
        lines = {}
        for handle, texts in stacks.items():
            of_handle = set()
            for one in texts:
                frames = re.findall(r'File "(.+?)", line (\d+)', one)
                frames = [f for f in frames if "site-packages" not in f[0]] or frames
                of_handle.add((frames[-1][0], int(frames[-1][1])))
            lines[handle] = frozenset(of_handle)
        if record.kind.endswith("_hit") and "_backward'" not in code[:100]:
            lines = _of_own_graph(latest, region, lines)
        key = json.loads(record.payload)["key"]
        graphs[region, key] = Graph(region, text[:80], handles, lines)
    return graphs


def _of_own_graph(
    latest: dict[tuple[str, str], str],
    region: str,
    lines: dict[str, frozenset[tuple[str, int]]],
) -> dict[str, frozenset[tuple[str, int]]]:
    """Of code from a cache: by the nodes that a kernel computes."""
    place: dict[str, tuple[str, int]] = {}
    now: tuple[str, int] | None = None
    for line in latest[region, "dynamo_output_graph"].split("\n"):
        comment = re.search(r"# File: (.+?):(\d+) in ", line)
        node = re.match(r"\s+(\w+)(: .*?)? = ", line)
        if comment:
            now = (comment[1], int(comment[2]))
        elif node and now:
            place[node[1]] = now
    maps = json.loads(latest[region, "inductor_provenance_tracking_node_mappings"])
    own = {}
    for handle in lines:
        nodes = [
            pre
            for post in maps["cppCodeToPost"][handle]
            for pre in maps["postToPre"].get(post, [])
        ]
        own[handle] = frozenset(place[node] for node in nodes)
    return own


def stem(name: str) -> str:
    name = re.sub(r"^graph_\d+_", "", name)
    if name.startswith("torch.ops."):
        return name.split(".")[3]
    return re.sub(r"^(aten::|mkldnn::|extern_kernels\.)", "", name).rstrip("_")


def expected_of(trace_path: Path, log_paths: list[Path]) -> Found:
    """The kernels of a recording with their counts and lines. Raises AssertionError
    where a call of a graph does not have the ops of its wrapper."""
    events = [
        event
        for event in json.loads(opened(trace_path))["traceEvents"]
        if event.get("ph") == "X"
    ]
    of_thread: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        of_thread[event["pid"], event["tid"]].append(event)
    found: dict[Expected, list[Any]] = {}
    logs = [(opened(path), path) for path in log_paths]
    for (pid, _), some in of_thread.items():
        some.sort(key=lambda event: (event["ts"], -event["dur"]))
        own_logs = [text for text, _ in logs if f" {pid} " in text[:60]]
        graphs: dict[tuple[str, str], Graph] = {}
        for text in own_logs or [text for text, _ in logs]:
            graphs |= graphs_of(text)
        for event in some:
            if event.get("cat") not in ("user_annotation", "cpu_op"):
                continue
            match = re.fullmatch(r"## Call CompiledFxGraph (\S+) ##", event["name"])
            if match:
                _add(found, some, event, match[1], graphs)
    return {one: (count, lines) for one, (count, lines) in found.items()}


def _inside(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
    end = outer["ts"] + outer["dur"]
    return bool(outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= end)


def _add(
    found: dict[Expected, list[Any]],
    events: list[dict[str, Any]],
    call: dict[str, Any],
    key: str,
    graphs: dict[tuple[str, str], Graph],
) -> None:
    regions = [
        event["name"].rpartition(" ")[2]
        for event in events
        if event["name"].startswith("Torch-Compiled Region") and _inside(call, event)
    ]
    if regions:
        graph = graphs[regions[-1], key]
    else:  # a backward pass
        (graph,) = [one for (_, k), one in graphs.items() if k == key]
    ops: list[dict[str, Any]] = []
    for event in events:
        is_op = event["cat"] == "cpu_op" and event["name"] != call["name"]
        if is_op and _inside(event, call) and not (ops and _inside(event, ops[-1])):
            ops.append(event)
    names = {stem(handle.rpartition(":")[0]) for handle in graph.handles}
    recorded = [stem(op["name"]) for op in ops if stem(op["name"]) in names]
    called = [stem(handle.rpartition(":")[0]) for handle in graph.handles]
    assert recorded == called, (key, recorded, called)
    for handle in graph.handles:
        one = Expected(graph.region, key, handle)
        lines = graph.lines.get(handle, frozenset())
        found.setdefault(one, [0, lines])[0] += 1


if __name__ == "__main__":
    trace, *paths = map(Path, sys.argv[1:])
    for one, (count, lines) in expected_of(trace, paths).items():
        print(one.region, one.handle, count, sorted(lines))
