"""A remedy names only what the device and the program of the trace have."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.analysis.why.rules.work import ADD, SGEMM, work
from tests.cases import Cases

from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.answer import why
from fusetui.analysis.why.engine import RULES
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.model import IDLE
from fusetui.analysis.why.remedies import choose_remedy_words, find_tags
from fusetui.analysis.why.versions import SINCE, TORCH_2, add_versions
from fusetui.report.whatif import NOTES
from fusetui.trace import Trace

DEFAULT = frozenset(
    {"nvidia", "compile", "graphs", "pdl", "torch2", "segments", "training"}
)
FOREIGN = {
    "amd": re.compile(
        r"nvidia|\bcuda[A-Z]|CUDA_|cuBLAS|cuDNN|CUPTI|Hopper|_CTAS|expandable"
    ),
    "intel": re.compile(
        r"nvidia|cuda|cuBLAS|cuDNN|CUPTI|Hopper|NCCL_|nccl|hip[A-Z]", re.IGNORECASE
    ),
    "": re.compile(r"nvidia-smi|CUDA_|cuBLAS|cuDNN|CUPTI|Hopper"),
}
"""What does not exist on the devices of a vendor; of an unknown one nothing is
known."""

OPS = work(*[("aten::add", ADD, 10)] * 3)


@pytest.fixture
def tags(trace_of: Callable[..., Trace]) -> Callable[..., frozenset[str]]:
    """The tags of a file with these events; keywords become keys of the file."""
    return lambda events, **keys: find_tags(Facts(Accounts(trace_of(events, **keys))))


def device(**properties: object) -> dict[str, Any]:
    return {"deviceProperties": [{"id": 0, **properties}]}


@pytest.mark.parametrize(
    ("tags", "text"),
    [({"a"}, "x A"), ({"b"}, "x B"), ({"a", "b"}, "x A"), (set(), "x C:D")],
)
def test_the_first_part_whose_tag_holds_is_said(tags: set[str], text: str) -> None:
    assert choose_remedy_words("x{none: never} {a:A|b:B|:C:D}", frozenset(tags)) == text


@pytest.mark.parametrize("vendor", FOREIGN)
def test_no_remedy_names_what_the_device_does_not_have(vendor: str) -> None:
    with Cases() as cases:
        for rule in RULES:
            tags = frozenset({vendor, "compile", "training"})
            remedy = choose_remedy_words(rule.remedy, tags)
            with cases.case(rule.id):
                assert not FOREIGN[vendor].search(remedy)
                assert not re.search(r"[{}|]|  | [,;]", remedy)


def test_text_said_of_every_device_names_no_vendor() -> None:
    said = [
        getattr(reason, each)
        for reason in IDLE.values()
        for each in reason.__struct_fields__
    ]
    for text in [*said, *NOTES.values()]:
        assert not re.search(r"(?i)cuda|hip graph|nvidia|amd\b", text)


FIND_A_COMPILER = ("recompilation", "cpu-compilation", "first-compiled-kernels")
"""Rules that find torch.compile of torch 2.0 or later at work."""


def test_without_a_compiler_no_remedy_is_to_compile() -> None:
    with Cases() as cases:
        for rule in RULES:
            if rule.id in FIND_A_COMPILER:
                continue
            remedy = choose_remedy_words(rule.remedy, DEFAULT - {"compile", "graphs"})
            with cases.case(rule.id):
                assert "torch.compile" not in remedy


def test_inference_has_no_optimizer_and_no_buckets() -> None:
    for rule in RULES:
        if rule.id not in ("optimizer-launches", "recompute"):
            assert not re.search(
                r"optimizer|DDP",
                choose_remedy_words(rule.remedy, DEFAULT - {"training"}),
            )


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            device(name="NVIDIA H100 80GB HBM3", computeMajor=9),
            {"nvidia", "segments", "compile", "graphs", "pdl"},
        ),
        (device(name="Quadro GP100", computeMajor=6), {"nvidia", "segments"}),
        (
            device(name="AMD Radeon Graphics", computeMajor=9),
            {"amd", "compile", "graphs"},
        ),
        ({"roctracer_version": 4.1}, {"amd", "compile", "graphs"}),
        (device(name="Intel(R) Data Center GPU Max 1550"), {"intel", "compile"}),
    ],
)
def test_the_device_decides(
    tags: Callable[..., Any], keys: Any, expected: set[str]
) -> None:
    assert tags(OPS, **keys) == {"torch2", *expected}


def of_2021(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """With categories as torch wrote them before 2.0."""
    categories = {"cpu_op": "Operator", "cuda_runtime": "Runtime", "kernel": "Kernel"}
    return [{**one, "cat": categories[one["cat"]]} for one in events]


def test_a_trace_from_before_torch_2_gets_no_setting_of_torch_2(
    tags: Callable[..., Any],
) -> None:
    tags_of_2021 = tags(of_2021(OPS), **device(name="Tesla V100", computeMajor=7))
    with Cases() as cases:
        for rule in RULES:
            remedy = choose_remedy_words(rule.remedy, tags_of_2021)
            is_upgrade = "Update to torch 2.0 and use " in remedy
            if rule.id in FIND_A_COMPILER or is_upgrade:
                continue
            for setting, since in SINCE.items():
                with cases.case(rule.id, setting):
                    assert since < TORCH_2 or setting not in remedy


@pytest.mark.parametrize(
    ("name", "keys", "expected"),
    [
        (
            "aten::add",
            {},
            "torch.compile fuses. torch.compile requires torch 2.0 or later.",
        ),
        ("aten::add", {"baseTimeNanoseconds": 1_700_000_000}, "torch.compile fuses."),
        ("Torch-Compiled Region: 0/0", {}, "torch.compile fuses."),
    ],
)
def test_the_version_that_a_setting_needs_is_named_where_it_is_unknown(
    trace_of: Callable[..., Trace],
    event: Callable[..., Any],
    name: str,
    keys: Any,
    expected: str,
) -> None:
    trace = trace_of([event(name, 0, 10)], **keys)
    assert add_versions("torch.compile fuses.", trace) == expected


def test_selective_checkpoints_are_advised_with_the_version_they_need(
    trace_of: Callable[..., Trace], event: Callable[..., Any]
) -> None:
    """Those of torch 2.4 have another interface, for the compiler only."""
    name = "torch.utils.checkpoint.create_selective_checkpoint_contexts"
    trace = trace_of([event()], baseTimeNanoseconds=1)
    assert add_versions(name, trace) == f"{name} {name} requires torch 2.5 or later."


def test_settings_of_one_version_are_named_together(
    trace_of: Callable[..., Trace], event: Callable[..., Any]
) -> None:
    text = add_versions("torch.compile, fused=True, TORCH_LOGS.", trace_of([event()]))
    assert text.endswith(
        " torch.compile and fused=True require torch 2.0 or later, and TORCH_LOGS "
        "requires torch 2.1 or later."
    )


@pytest.mark.parametrize(
    ("category", "call", "vendor"),
    [
        ("xpu_runtime", "urEnqueueKernelLaunch", "intel"),
        ("cuda_runtime", "hipLaunchKernel", "amd"),
        ("cuda_runtime", "cudaLaunchKernel", "nvidia"),
    ],
)
def test_without_properties_the_launches_do(
    tags: Callable[..., Any], category: str, call: str, vendor: str
) -> None:
    calls = [
        {**one, "cat": category, "name": call} for one in OPS if "runtime" in one["cat"]
    ]
    assert vendor in tags(
        [*(one for one in OPS if "runtime" not in one["cat"]), *calls]
    )


def test_kernels_alone_tell_no_vendor(tags: Callable[..., Any]) -> None:
    kernels = [one for one in OPS if one["cat"] == "kernel"]
    assert not tags(kernels) & {"nvidia", "amd", "intel", "serving"}


@pytest.mark.parametrize(
    ("name", "category", "found"),
    [
        ("AddBackward0", "cpu_op", {"training"}),
        ("Optimizer.step#SGD.step", "user_annotation", {"training"}),
        ("module.py(1): _get_backward_hooks", "python_function", set()),
        ("execute_context_0(0)_generation_16(16)", "user_annotation", {"serving"}),
    ],
)
def test_the_program_decides(
    tags: Callable[..., Any],
    event: Callable[..., Any],
    name: str,
    category: str,
    found: set[str],
) -> None:
    around = event(name, 0, 10_000, cat=category)
    assert tags([*OPS, around]) & {"training", "serving"} == found


def test_nothing_said_of_an_intel_gpu_is_about_cuda(
    trace_of: Callable[..., Trace], event: Callable[..., Any]
) -> None:
    """Launches, allocations, synchronization, pageable copies, plain products, steps
    and stacks."""
    events: list[Any] = []
    for n in range(6):
        ts, link = 1_000 * n, {"args": {"correlation": n + 1}}
        name = ("gemm_kernel", ADD, SGEMM)[n % 3]
        calls = ("urUSMDeviceAlloc", "urEnqueueEventsWait", "urEnqueueKernelLaunch")
        events += [
            event("aten::copy_", ts, 900),
            event("a.py(1): f", ts, 950, cat="python_function"),
            *(
                event(call, ts + 200 * k, 190, cat="xpu_runtime")
                for k, call in enumerate(calls)
            ),
            event("urEnqueueKernelLaunch", ts + 700, 150, cat="xpu_runtime", **link),
            event(name, ts + 900, 50, cat="kernel", pid=0, tid=7, **link),
            event(
                "Memcpy HtoD (Pageable -> Device)",
                ts + 950,
                40,
                cat="gpu_memcpy",
                pid=0,
                tid=7,
            ),
        ]
    events.append(event("ProfilerStep#1", 0, 6_000, cat="user_annotation"))
    found = why(trace_of(events, **device(name="Intel(R) Data Center GPU Max 1550")))
    assert {"host-bound", "recording", "casts-and-copies"} <= {
        one.rule for one in found.findings
    }
    texts = [text for one in found.findings for text in (one.text, one.try_ or "")]
    texts += [one.record_with for one in found.cannot_tell]
    assert [text for text in texts if FOREIGN["intel"].search(text)] == []
