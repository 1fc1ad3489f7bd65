"""Kernels of built traces lead to the lines of built logs, or are counted with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.compile_logs import Kernel, Line, Log, Recording

from fusetui.analysis.compiled.answer import report_compilation
from fusetui.analysis.compiled.graphs import Why
from fusetui.analysis.compiled.model import CompileAnswer, CompiledKernel
from fusetui.trace import open_trace
from fusetui.trace.compile_log.log import read_compile_log

GELU = Line(10, "h = gelu(x)")
MUL = Line(11, "return h * y")
ADD = Line(20, "return x + y", "other")
FUSED = Kernel("cpp_fused_gelu_mul_0", (GELU, MUL), ("gelu", "mul"))
MM = Kernel("extern_kernels.mm", (MUL,), ("mm",))
CPP = "graph_0_cpp_fused_gelu_mul_0"
POINTWISE = "triton_poi_fused_gelu_mul_0"
FILE = "/tmp/torchinductor_me/ab/cabc.py"


def answer(
    folder: Path, recording: Recording, *logs: Log, **keys: Any
) -> CompileAnswer:
    trace = open_trace(str(recording.write(folder, **keys)), cached=False)
    for number, log in enumerate(logs):
        log.write(folder / "log", f"{number}.log")
    found = read_compile_log(str(folder / "log")) if logs else None
    return report_compilation(trace, found)


def kernels(found: CompileAnswer) -> dict[str, CompiledKernel]:
    return {
        f"{region.compile_id} {kernel.handle or kernel.name}": kernel
        for region in found.regions
        for kernel in region.kernels
    }


def lines(kernel: CompiledKernel) -> list[int]:
    return [line.line for line in kernel.lines]


def test_a_kernel_leads_to_its_lines_by_key(tmp_path: Path) -> None:
    recording = (
        Recording().call("key", ["aten::mm", CPP]).call("key", ["aten::mm", CPP])
    )
    found = answer(tmp_path, recording, Log().graph("key", [MM, FUSED]).metrics())
    fused = kernels(found)["0/0 cpp_fused_gelu_mul_0:2"]
    assert (fused.calls, fused.total_ns, lines(fused)) == (2, 20_000, [10, 11])
    assert (found.kernels, found.joined, found.not_joined) == (4, 4, ())


def test_a_name_that_recurs_leads_to_the_lines_of_its_own_graph(tmp_path: Path) -> None:
    other = Kernel("cpp_fused_gelu_mul_0", (ADD,))
    log = Log().graph("one", [FUSED]).graph("two", [other], region="1/0")
    recording = Recording().call("one", [CPP])
    recording.call("two", ["graph_1_cpp_fused_gelu_mul_0"], region="1/0")
    found = kernels(answer(tmp_path, recording, log))
    assert lines(found["0/0 cpp_fused_gelu_mul_0:1"]) == [10, 11]
    assert lines(found["1/0 cpp_fused_gelu_mul_0:1"]) == [20]


def test_the_order_of_calls_tells_handles_of_one_name_apart(tmp_path: Path) -> None:
    log = Log().graph("key", [MM._replace(lines=(GELU,)), MM, FUSED])
    recording = Recording().call("key", ["aten::mm", "aten::mm", CPP])
    found = kernels(answer(tmp_path, recording, log))
    assert lines(found["0/0 extern_kernels.mm:1"]) == [10]
    assert lines(found["0/0 extern_kernels.mm:2"]) == [11]


def test_where_counts_disagree_all_calls_are_possible(tmp_path: Path) -> None:
    log = Log().graph("key", [MM._replace(lines=(GELU,)), MM])
    found = answer(tmp_path, Recording().call("key", ["aten::mm"]), log)
    kernel = kernels(found)["0/0 extern_kernels.mm"]
    assert (kernel.possible, lines(kernel)) == (True, [10, 11])
    assert found.possible == 1


def test_a_backward_pass_has_no_region_and_its_own_key(tmp_path: Path) -> None:
    log = Log().graph("fwd", [FUSED], aot_id="0_forward")
    log.graph("bwd", [FUSED._replace(lines=(MUL,))], aot_id="0_backward")
    recording = Recording().call("fwd", [CPP]).call("bwd", [CPP], is_backward=True)
    found = answer(tmp_path, recording, log)
    passes = {region.pass_: region for region in found.regions}
    assert lines(passes["backward"].kernels[0]) == [11]
    assert passes["backward"].compile_id == "0/0"


def why(found: CompileAnswer) -> list[tuple[str, int]]:
    return [(one.why, one.kernels) for one in found.not_joined]


def test_without_a_log_nothing_is_joined(tmp_path: Path) -> None:
    found = answer(tmp_path, Recording().call("key", [CPP]))
    assert why(found) == [(Why.NO_LOG, 1)]


def test_a_key_that_the_log_lacks_is_not_joined_by_compile_id(tmp_path: Path) -> None:
    log = Log().graph("other", [FUSED])
    assert why(answer(tmp_path, Recording().call("key", [CPP]), log)) == [
        (Why.KEY_NOT_IN_LOG, 1)
    ]


def test_two_logs_that_claim_a_key_with_other_lines(tmp_path: Path) -> None:
    logs = [Log(process=process).graph("key", [FUSED]) for process in (1, 2)]
    logs[1] = Log(process=2).graph("key", [FUSED._replace(lines=(ADD,))])
    found = answer(tmp_path, Recording().call("key", [CPP]), *logs)
    assert why(found) == [(Why.TWO_LOGS, 1)]


def test_two_logs_with_the_same_texts_are_no_doubt(tmp_path: Path) -> None:
    logs = [Log(process=process).graph("key", [FUSED]) for process in (1, 2)]
    found = answer(tmp_path, Recording().call("key", [CPP]), *logs)
    assert found.joined == 1


def test_the_log_of_the_trace_s_process_is_taken(tmp_path: Path) -> None:
    other = Log(process=2).graph("key", [FUSED._replace(lines=(ADD,))])
    found = answer(
        tmp_path, Recording().call("key", [CPP]), Log().graph("key", [FUSED]), other
    )
    assert lines(kernels(found)["0/0 cpp_fused_gelu_mul_0:1"]) == [10, 11]


def test_the_log_of_the_trace_s_rank_is_taken(tmp_path: Path) -> None:
    logs = [
        Log(rank=0, process=1).graph("key", [FUSED]).metrics(),
        Log(rank=1, process=1).graph("key", [FUSED._replace(lines=(ADD,))]).metrics(),
    ]
    found = answer(
        tmp_path,
        Recording().call("key", [CPP]),
        *logs,
        distributedInfo={"rank": 1, "world_size": 2},
    )
    assert lines(kernels(found)["0/0 cpp_fused_gelu_mul_0:1"]) == [20]
    assert len(found.compilations) == 1


def test_a_log_without_provenance(tmp_path: Path) -> None:
    log = Log().graph("key", [FUSED], has_provenance=False)
    assert why(answer(tmp_path, Recording().call("key", [CPP]), log)) == [
        (Why.NO_PROVENANCE, 1)
    ]


def test_an_op_that_the_wrapper_does_not_call(tmp_path: Path) -> None:
    found = answer(
        tmp_path, Recording().call("key", ["aten::bmm"]), Log().graph("key", [FUSED])
    )
    assert why(found) == [(Why.NOT_IN_WRAPPER, 1)]


def test_code_from_a_cache_gets_the_lines_of_its_own_function(tmp_path: Path) -> None:
    log = Log().graph("key", [FUSED], region="0/0")
    log.dynamo_graph({"gelu": ADD, "mul": ADD}, region="1/0")
    log.graph("key", [FUSED], region="1/0", cache="hit")
    recording = Recording().call("key", [CPP]).call("key", [CPP], region="1/0")
    found = kernels(answer(tmp_path, recording, log))
    assert lines(found["0/0 cpp_fused_gelu_mul_0:1"]) == [10, 11]
    assert lines(found["1/0 cpp_fused_gelu_mul_0:1"]) == [20]


def test_stale_lines_of_a_cache_are_not_shown(tmp_path: Path) -> None:
    log = Log().dynamo_graph({"renamed": ADD}).graph("key", [FUSED], cache="hit")
    found = answer(tmp_path, Recording().call("key", [CPP]), log)
    assert why(found) == [(Why.CACHED, 1)]


TRITON = Kernel(POINTWISE, (GELU, MUL), ("gelu", "mul"), FILE)


def test_triton_kernels_on_a_gpu_lead_to_their_lines(tmp_path: Path) -> None:
    log = Log().graph("key", [MM, TRITON])
    recording = Recording().call("key", ["aten::mm", POINTWISE], on_gpu=True)
    found = kernels(answer(tmp_path, recording, log))
    fused = found[f"0/0 {POINTWISE}:2"]
    assert (fused.on_gpu, fused.total_ns, lines(fused)) == (True, 5_000, [10, 11])
    assert found["0/0 extern_kernels.mm:1"].on_gpu


def test_without_an_annotation_the_compile_id_leads_to_its_only_graph(
    tmp_path: Path,
) -> None:
    recording = Recording().call("", [POINTWISE], on_gpu=True, is_annotated=False)
    found = answer(tmp_path, recording, Log().graph("key", [TRITON]))
    assert [region.joined_by for region in found.regions] == ["compile id"]
    assert found.joined == 1


def test_a_kernel_file_leads_to_its_wrapper(tmp_path: Path) -> None:
    log = Log().graph("one", [TRITON]).graph("two", [FUSED])
    recording = Recording().call(
        "None", [POINTWISE], on_gpu=True, files={POINTWISE: FILE}
    )
    found = answer(tmp_path, recording, log)
    assert [region.joined_by for region in found.regions if region.kernels] == [
        "kernel file"
    ]
    assert found.joined == 1


def test_a_kernel_file_of_two_wrappers_leads_to_none(tmp_path: Path) -> None:
    log = Log().graph("one", [TRITON])
    log.graph("two", [TRITON._replace(lines=(ADD,))], region="1/0")
    recording = Recording().call(
        "None", [POINTWISE], on_gpu=True, files={POINTWISE: FILE}, is_backward=True
    )
    assert why(answer(tmp_path, recording, log)) == [(Why.TWO_WRAPPERS, 1)]


def test_a_trace_without_regions_has_none(tmp_path: Path) -> None:
    recording = Recording()
    recording.slice("aten::mm", "cpu_op", 0, 10)
    found = answer(tmp_path, recording)
    assert (found.regions, found.kernels) == ((), 0)
