"""Measures the tables of the documentation again: `make benchmarks`, or some with
ONLY="why keys".

The traces are real ones, in the folder FUSETUI_TRACES. What needs HTA runs if
HTA_PYTHON names a Python that has it; the GPU tables of docs/experiments.md are those
of gpu_session.py. The longest ones keep what they measured of each trace in the folder
BENCHMARKS_WORK, if there is one, and go on there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fusetui import sample_traces

FOLDER = Path(__file__).resolve().parent
DIFF = "docs/diff.md"
PAIRS = (
    ("h100_bert-small", "mi300_bert-small"),
    ("a100_train_diff_control", "v100_train_diff_test"),
    ("pair_attention_unfused_h100", "pair_attention_fused_mi300"),
)
SUMS = (
    *(
        "a100_train_diff_control v100_train_diff_test",
        "h100_Qwen1.5-0.5B mi300_Qwen1.5-0.5B",
    ),
    *(
        "h100_bert-small mi300_bert-small",
        "b300_deepseek_r1_decode mi300_deepseek_r1_decode",
    ),
    *(
        "mi300_vllm_decode_graph mi300_sglang_decode_graph",
        "dlrm_ranks/rank0 dlrm_ranks/rank2",
    ),
    *(
        "dlrm_ranks/rank1 dlrm_ranks/rank3",
        "pair_moe_unfused_mi300 pair_moe_fused_h100",
    ),
    "pair_attention_unfused_h100 pair_attention_fused_mi300",
)
LESSONS = ("mlp-eager", "mlp-compiled", "linear-eager", "linear-compiled")
SEVERAL_STEPS = (
    *("a100_train_diff_control", "v100_train_diff_test", "v100_resnet50_2021"),
    "v100_absolute_ns",
)
TWINS = (
    *("pftrace/a100_nccl_ddp_full", "pftrace/h100_transformer_step_full"),
    "nsys/h100_2gpu_1s.sqlite",
)
NAMES = {"kernel_names": "../kernel_names.jsonl"}
"""Beside the folder of traces: one JSON object for each known kernel name."""


def commands(traces: Path, hta: str | None, big: str) -> dict[str, list[list[str]]]:
    """By a script's name, its command lines; `big` is where a large trace may stand."""

    def at(*names: str) -> list[str]:
        return [str(traces / f"{name}.json.gz") for name in names]

    by_size = sorted(traces.glob("*.json.gz"), key=lambda path: path.stat().st_size)
    every = [str(path) for path in by_size]
    work = os.environ.get("BENCHMARKS_WORK")
    keeping = ["--work", work] if work else []
    lessons = [str(sample_traces.path(name)) for name in LESSONS]
    by_hta = ["--hta", hta or ""]
    found: dict[str, list[list[str]]] = {
        "reading": [at("h100_owlv2")],
        "characters": [[str(traces), "--put", *(by_hta if hta else [])]],
        "floors": [[*at("h100_owlv2"), "--repeat", "5"]],
        "cores": [at("h100_owlv2")],
        "first_picture": [at("h100_owlv2")],
        "formats": [[str(traces.parent / name) for name in TWINS]],
        "snapshots": [
            [*map(str, sorted(traces.parent.glob("snapshots/*.pickle"))), "--put"]
        ],
        "generate": [[*at("h100_owlv2"), big, "--megabytes", "420"]],
        "presses": [[*at("h100_transformer_step"), "--put"]],
        "screen": [["--put", *at("h100_owlv2"), big]],
        "generate_snapshot": [[str(Path(big).parent / GENERATED)]],
        "keys": [
            ["--put", *at("h100_owlv2", "mtia_inference"), *snapshots_of(traces, big)]
        ],
        "trees": [[big, "--write", "docs/benchmarks.md"]],
        "cutting": [[*at("h100_owlv2"), "--into", "docs/benchmarks.md"]],
        "decode": [[str(traces / NAMES["kernel_names"])]],
        "why": [at("a100_train_diff_control", "h100_owlv2")],
        "ranks": [[*at("nccl_collectives"), *(by_hta if hta else [])]],
        "joining": [at("mi300_sglang_decode_graph", "mi300_sglang_capture")],
        "bounded": [at("h100_owlv2")] if os.geteuid() == 0 else [],
        "recording": [[]],
        "rank_jobs": [["--put"]],
        "diff_sums": [[*at(*" ".join(SUMS).split()), *lessons, "--into", DIFF]],
        "diff_noise": [[*at(*SEVERAL_STEPS), "--into", DIFF]],
        "diff_rules": [[*at(*SEVERAL_STEPS, "rtx2080ti_linear"), "--into", DIFF]],
        "diff_alarms": [["--into", DIFF]],
        "diff_planted": [[*every, *keeping, "--into", DIFF]],
        "diff_launches": [[*every, *keeping, "--into", DIFF]],
        "diff_planted_hta": [[*every, *by_hta, "--into", DIFF]],
        "diff_peers": [[*at(*pair), *by_hta, "--into", DIFF] for pair in PAIRS],
        "python_peers": [[*at(*PAIRS[1]), *by_hta, "--into", "docs/python.md"]],
        "capture_experiments": [["--device", "cpu"]],
        "claims": [[]],
        "predictions": [["--write"]],
        "triton_code": [["--write"]],
        "whatif_programs": [[]],
        "whatif_pairs": [[str(traces)]],
        "whatif_cpu": [["--rounds", "9"]],
    }
    without = () if hta else ("diff_planted_hta", "diff_peers", "python_peers")
    return {name: lines for name, lines in found.items() if name not in without}


def main() -> int:
    traces = Path(
        os.environ.get("FUSETUI_TRACES") or sys.exit("FUSETUI_TRACES names no folder")
    )
    wanted, failed = set(sys.argv[1:]), []
    with tempfile.TemporaryDirectory() as folder:
        known = commands(
            traces, os.environ.get("HTA_PYTHON"), str(Path(folder) / "big.json")
        )
        if unknown := wanted - {*known}:
            sys.exit(f"no such benchmark here: {', '.join(sorted(unknown))}")
        for name, lines in known.items():
            if wanted and name not in wanted and not wanted & MADE_FOR.get(name, set()):
                continue
            for line in lines:
                print(f"== {name}", flush=True)
                run = [sys.executable, "-P", str(FOLDER / f"{name}.py"), *line]
                if subprocess.run(run, cwd=FOLDER.parent).returncode:
                    failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


def snapshots_of(traces: Path, big: str) -> list[str]:
    """A real one, and the one that generate_snapshot.py makes."""
    return [
        str(traces.parent / "snapshots" / SNAPSHOT),
        str(Path(big).parent / GENERATED),
    ]


MADE_FOR = {"generate": {"screen", "trees"}, "generate_snapshot": {"keys"}}
"""What makes a file, and what needs it."""
SNAPSHOT, GENERATED = "gpt_fullstep_ctx256.pickle", "generated_100_mb.pickle"

if __name__ == "__main__":
    sys.exit(main())
