"""The table of findings (docs/judgments.tsv), which has a judgment for each."""

from __future__ import annotations

from tests.real.judgments import JUDGMENTS, NONE, read

from fusetui.analysis.why.engine import RULES


def test_each_kept_finding_has_a_judgment_and_how_it_was_checked() -> None:
    lacking = [
        one
        for one in read()
        if one.judgment not in JUDGMENTS or not one.checked.strip()
    ]
    assert lacking == []


def test_the_table_names_rules_that_there_are() -> None:
    known = {rule.id for rule in RULES} | {NONE}
    assert {line.rule for line in read()} <= known


def rules_of(trace: str) -> list[str]:
    """In the order of the answer."""
    return [line.rule for line in read() if line.trace == trace]


def test_the_data_loader_comes_first_of_what_keeps_the_gpu_waiting() -> None:
    about_kernels = {rule.id for rule in RULES if rule.of_kernels}
    for trace in ("h100_owlv2.json.gz", "v100_resnet50_2021.json.gz"):
        waiting = [rule for rule in rules_of(trace) if rule not in about_kernels]
        assert waiting[0] == "data-loading"


def test_pointwise_work_comes_first_where_the_gpu_is_busy() -> None:
    first = set(rules_of("h100_Qwen1.5-0.5B.json.gz")[:2])
    assert first == {"fusable-run", "casts-and-copies"}


def test_trace_of_replayed_graphs_has_no_finding() -> None:
    assert rules_of("mi300_vllm_decode_graph.json.gz") == [NONE]
