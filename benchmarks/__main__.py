"""Measures the tables of the documentation again: `make benchmarks`, or some with
ONLY="why keys".

The traces are real ones, in the folder FUSETUI_TRACES. What needs HTA runs if
HTA_PYTHON names a Python that has it. gpu_session.py makes the GPU tables of
docs/experiments.md. The longest benchmarks keep what they measured of each trace in the
folder BENCHMARKS_WORK, if there is one, and go on there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from itertools import chain
from pathlib import Path

from fusetui import sample_traces

FOLDER = Path(__file__).resolve().parent
DIFF_PAGE = "docs/diff.md"
SAME_MODEL = ("a100_train_diff_control", "v100_train_diff_test")
PAIRS = (
    ("h100_bert-small", "mi300_bert-small"),
    SAME_MODEL,
    ("pair_attention_unfused_h100", "pair_attention_fused_mi300"),
)
SUMMED_PAIRS = (
    SAME_MODEL,
    ("h100_Qwen1.5-0.5B", "mi300_Qwen1.5-0.5B"),
    ("h100_bert-small", "mi300_bert-small"),
    ("b300_deepseek_r1_decode", "mi300_deepseek_r1_decode"),
    ("mi300_vllm_decode_graph", "mi300_sglang_decode_graph"),
    ("dlrm_ranks/rank0", "dlrm_ranks/rank2"),
    ("dlrm_ranks/rank1", "dlrm_ranks/rank3"),
    ("pair_moe_unfused_mi300", "pair_moe_fused_h100"),
    ("pair_attention_unfused_h100", "pair_attention_fused_mi300"),
)
LESSONS = ("mlp-eager", "mlp-compiled", "linear-eager", "linear-compiled")
SEVERAL_STEPS = (
    "a100_train_diff_control",
    "v100_train_diff_test",
    "v100_resnet50_2021",
    "v100_absolute_ns",
)
TWINS = (
    "pftrace/a100_nccl_ddp_full",
    "pftrace/h100_transformer_step_full",
    "nsys/h100_2gpu_1s.sqlite",
)
"""Beside the folder of traces: traces in other formats."""
KERNEL_NAMES = "../kernel_names.jsonl"
"""Beside the folder of traces: one JSON object for each known kernel name."""
SNAPSHOT = "gpt_fullstep_ctx256.pickle"
GENERATED_SNAPSHOT = "generated_100_mb.pickle"
GENERATED_TRACE = "big.json"
NEEDED_BY = {"generate": {"screen", "trees"}, "generate_snapshot": {"keys"}}
"""The benchmarks that need the file which a script makes."""
ONLY_WITH_HTA = ("diff_planted_hta", "diff_peers", "python_peers")

Arguments = list[str]


def commands(
    traces: Path, hta_python: str | None, generated: Path
) -> dict[str, list[Arguments]]:
    """Return what to run: by the name of the script, the arguments of each of its runs.
    `generated` is the folder for files that scripts make for others. Without
    `hta_python`, benchmarks that need HTA are left out."""

    def at(*names: str) -> list[str]:
        return [str(traces / f"{name}.json.gz") for name in names]

    all_traces = sorted(traces.glob("*.json.gz"), key=lambda path: path.stat().st_size)
    by_size = [str(path) for path in all_traces]
    big = str(generated / GENERATED_TRACE)
    big_snapshot = str(generated / GENERATED_SNAPSHOT)
    snapshots = traces.parent / "snapshots"
    lessons = [str(sample_traces.path(name)) for name in LESSONS]
    work = os.environ.get("BENCHMARKS_WORK")
    keeping = ["--work", work] if work else []
    with_hta = ["--hta", hta_python] if hta_python else []

    runs: dict[str, list[Arguments]] = {
        "reading": [at("h100_owlv2")],
        "characters": [[str(traces), "--put", *with_hta]],
        "floors": [[*at("h100_owlv2"), "--repeat", "5"]],
        "cores": [at("h100_owlv2")],
        "first_picture": [at("h100_owlv2")],
        "formats": [[str(traces.parent / name) for name in TWINS]],
        "snapshots": [
            [*(str(path) for path in sorted(snapshots.glob("*.pickle"))), "--put"]
        ],
        "generate": [[*at("h100_owlv2"), big, "--megabytes", "420"]],
        "presses": [[*at("h100_transformer_step"), "--put"]],
        "screen": [["--put", *at("h100_owlv2"), big]],
        "generate_snapshot": [[big_snapshot]],
        "keys": [
            [
                "--put",
                *at("h100_owlv2", "mtia_inference"),
                str(snapshots / SNAPSHOT),
                big_snapshot,
            ]
        ],
        "trees": [[big, "--write", "docs/benchmarks.md"]],
        "cutting": [[*at("h100_owlv2"), "--into", "docs/benchmarks.md"]],
        "decode": [[str(traces / KERNEL_NAMES)]],
        "why": [at("a100_train_diff_control", "h100_owlv2")],
        "ranks": [[*at("nccl_collectives"), *with_hta]],
        "joining": [at("mi300_sglang_decode_graph", "mi300_sglang_capture")],
        "bounded": [at("h100_owlv2")] if os.geteuid() == 0 else [],
        "recording": [[]],
        "rank_jobs": [["--put"]],
        "diff_sums": [
            [
                *at(*chain.from_iterable(SUMMED_PAIRS)),
                *lessons,
                "--into",
                DIFF_PAGE,
            ]
        ],
        "diff_noise": [[*at(*SEVERAL_STEPS), "--into", DIFF_PAGE]],
        "diff_rules": [[*at(*SEVERAL_STEPS, "rtx2080ti_linear"), "--into", DIFF_PAGE]],
        "diff_outliers": [[*at(*SEVERAL_STEPS), "--into", DIFF_PAGE]],
        "diff_alarms": [["--into", DIFF_PAGE]],
        "diff_planted": [[*by_size, *keeping, "--into", DIFF_PAGE]],
        "diff_launches": [[*by_size, *keeping, "--into", DIFF_PAGE]],
        "diff_planted_hta": [[*by_size, *with_hta, "--into", DIFF_PAGE]],
        "diff_peers": [[*at(*pair), *with_hta, "--into", DIFF_PAGE] for pair in PAIRS],
        "python_peers": [[*at(*SAME_MODEL), *with_hta, "--into", "docs/python.md"]],
        "capture_experiments": [["--device", "cpu"]],
        "claims": [[]],
        "predictions": [["--write"]],
        "triton_code": [["--write"]],
        "whatif_programs": [[]],
        "whatif_pairs": [[str(traces)]],
        "whatif_cpu": [["--rounds", "9"]],
    }
    if not hta_python:
        for name in ONLY_WITH_HTA:
            del runs[name]

    return runs


def main() -> int:
    """Run all benchmarks, or those that the command line names together with the
    scripts that make their files. Returns 1 if any failed."""
    traces = os.environ.get("FUSETUI_TRACES")
    if not traces:
        sys.exit("FUSETUI_TRACES names no folder")

    wanted_benchmarks = set(sys.argv[1:])
    failed_benchmarks: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        runs = commands(Path(traces), os.environ.get("HTA_PYTHON"), Path(folder))

        unknown = wanted_benchmarks - set(runs)
        if unknown:
            sys.exit(f"no such benchmark here: {', '.join(sorted(unknown))}")

        for name, arguments_of_runs in runs.items():
            is_needed = name in wanted_benchmarks or wanted_benchmarks & NEEDED_BY.get(
                name, set()
            )
            if wanted_benchmarks and not is_needed:
                continue
            for arguments in arguments_of_runs:
                print(f"== {name}", flush=True)
                command = [sys.executable, "-P", str(FOLDER / f"{name}.py"), *arguments]
                if subprocess.run(command, cwd=FOLDER.parent).returncode:
                    failed_benchmarks.append(name)

    if failed_benchmarks:
        print(f"failed: {', '.join(failed_benchmarks)}", file=sys.stderr)

    return 1 if failed_benchmarks else 0


if __name__ == "__main__":
    sys.exit(main())
