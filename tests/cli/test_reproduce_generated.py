"""`fusetui reproduce --with-generated-code`: code of a compile log beside the script
that runs it."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Result
from tests.compile_logs import Line, Log, Recording
from tests.plain_scripts import check_plain
from tests.running_scripts import run_script

from fusetui.analysis.reproduce import generated

Run = Callable[..., Result]
KEY = "fabc"
KERNEL = "cpp_fused_add_0"
OP = f"graph_0_{KERNEL}"
HOSTILE = 'a\'"""{}\n#@calls\nraise SystemExit(7)'

MODULE = f"""# AOT ID: ['0_inference']
import torch


class Compiler:
    def cpp_pybinding(self, types, code):
        def kernel(given, out):
            with torch.profiler.record_function("{OP}"):
                torch.add(given, 1, out=out)
        return kernel


async_compile = Compiler()

{KERNEL} = async_compile.cpp_pybinding(['float*', 'float*'], r'''
''')


class Runner:
    def call(self, args):
        arg0_1, = args
        args.clear()
        buf0 = torch.empty(8)
        # [Provenance debug handles] {KERNEL}:1
        {KERNEL}(arg0_1, buf0)
        buf1 = torch.empty(8)
        # [Provenance debug handles] {KERNEL}:2
        {KERNEL}(buf0, buf1)
        return (buf1, )

runner = Runner()
call = runner.call


def get_args():
    return [torch.ones(8)]
"""


def log_of(code: str, key: str = KEY) -> Log:
    log = Log()
    path = "/tmp/../../etc/../cabc.py"  # a name in the log leads nowhere
    log.record({"inductor_output_code": {"filename": path, "file_path": path}}, code)
    line = Line(10, "y = x + 1")
    handles = {f"{KERNEL}:1": [line.stack()], f"{KERNEL}:2": [line.stack()]}
    name = "inductor_provenance_tracking_kernel_stack_traces"
    log.artifact(name, json.dumps(handles))
    return log.artifact("fx_graph_cache_miss", json.dumps({"key": key}))


def trace_in(folder: Path) -> Path:
    """Two calls of the kernel in each of two calls of the graph, the second one the
    longer."""
    recording = Recording()
    recording.call(KEY, [OP, OP]).call(KEY, [OP, OP])
    return recording.write(folder)


def written(fusetui: Run, folder: Path, code: str = MODULE, **options: str) -> Result:
    """The answer of the command, with the script in `folder`/out.py."""
    log = log_of(code, options.get("key", KEY)).write(folder / "log")
    return fusetui(
        "reproduce",
        trace_in(folder),
        *("--op", OP, "--with-generated-code", "--compile-log", log),
        *("--out", folder / "out.py"),
    )


def ran(script: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_code_is_copied_as_it_is_with_a_warning(
    fusetui: Run, tmp_path: Path
) -> None:
    told = written(fusetui, tmp_path)
    assert told.code == 0
    assert (tmp_path / "out_generated.py").read_text() == MODULE
    assert "is code copied unchanged from" in told.err
    assert "read it first" in told.err
    script = (tmp_path / "out.py").read_text()
    check_plain(script)
    assert f'NAME = "{KERNEL}"' in script
    assert hashlib.sha256(MODULE.encode()).hexdigest() in script


@pytest.mark.torch
def test_the_script_runs_the_generated_kernel(fusetui: Run, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    written(fusetui, tmp_path)
    done = ran(tmp_path / "out.py", "--json")
    (result,) = (
        json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"
    )
    assert done.returncode == 0, done.stderr
    assert (result["op"], result["ran"], result["is_unchanged"]) == (KERNEL, True, True)
    assert result["bytes"] == 2 * 8 * 4
    assert result["low_us"] <= result["us"] <= result["high_us"]


@pytest.mark.torch
def test_the_whole_graph_of_a_region_runs(fusetui: Run, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    log = log_of(MODULE).write(tmp_path / "log")
    out = tmp_path / "out.py"
    told = fusetui(
        "reproduce",
        trace_in(tmp_path),
        *("--op", "Torch-Compiled Region: 0/0", "--with-generated-code"),
        *("--compile-log", log, "--out", out),
    )
    assert told.code == 0
    done = run_script(out, "--check-only")
    assert done.code == 0, done.err
    assert "call (the whole graph of the generated code)" in done.out


@pytest.mark.torch
def test_changed_code_and_code_that_fails_are_told(
    fusetui: Run, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    written(fusetui, tmp_path)
    code = tmp_path / "out_generated.py"
    code.write_text(MODULE.replace("given, 1", "given, 2"))
    changed = run_script(tmp_path / "out.py", "--check-only")
    assert (changed.code, "CHANGED" in changed.out) == (1, True)
    code.write_text("raise ValueError('for a GPU')")
    failed = run_script(tmp_path / "out.py")
    assert failed.code == 2
    assert "ValueError: for a GPU" in failed.err
    assert "Traceback" not in failed.err
    code.unlink()
    missing = run_script(tmp_path / "out.py")
    assert "belongs beside this script" in missing.err


def test_a_log_of_another_program_is_refused(fusetui: Run, tmp_path: Path) -> None:
    told = written(fusetui, tmp_path, key="fxyz")
    assert told.code == 2
    assert f"{OP} is not in the log" in told.sentence
    assert "the log has no graph with this key" in told.sentence
    assert not (tmp_path / "out.py").exists()


def test_a_kernel_that_the_module_only_calls_is_refused(
    fusetui: Run, tmp_path: Path
) -> None:
    code = MODULE.replace("async_compile.cpp_pybinding", "dict")
    assert "does not define it" in written(fusetui, tmp_path, code).sentence


def test_without_a_log_the_answer_says_what_to_record(
    fusetui: Run, tmp_path: Path
) -> None:
    trace = trace_in(tmp_path)
    given = ("reproduce", trace, "--op", OP)
    told = fusetui(*given, "--with-generated-code", "--out", tmp_path / "out.py")
    assert told.code == 2
    assert "Record with TORCH_TRACE=DIR" in told.sentence
    script = fusetui(*given).out
    check_plain(script)
    assert "--with-generated-code" in script


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--op", OP), "needs --out"),
        (("--op", OP, "--json"), "--with-generated-code or --json, not both"),
        (("--module", "M", "--out", "a.py"), "or --module, not both"),
        (("--op", "mm", "--out", "a.py"), "No op of this trace is named mm"),
    ],
)
def test_options_that_do_not_go_together(
    fusetui: Run, tmp_path: Path, options: tuple[str, ...], sentence: str
) -> None:
    told = fusetui("reproduce", trace_in(tmp_path), "--with-generated-code", *options)
    assert told.code == 2
    assert sentence in told.sentence


def test_other_code_than_generated_is_refused(fusetui: Run, tmp_path: Path) -> None:
    recording = Recording()
    recording.slice("aten::mm", "cpu_op", 0, 10)
    trace = recording.write(tmp_path)
    out = tmp_path / "a.py"
    told = fusetui(
        "reproduce", trace, "--row", 0, "--with-generated-code", "--out", out
    )
    assert "aten::mm was not generated by torch.compile" in told.sentence


def test_no_file_is_replaced_and_none_is_left_half_done(
    fusetui: Run, tmp_path: Path
) -> None:
    (tmp_path / "out_generated.py").write_text("mine")
    told = written(fusetui, tmp_path)
    assert (told.code, "already exists" in told.sentence) == (2, True)
    assert (tmp_path / "out_generated.py").read_text() == "mine"
    assert not (tmp_path / "out.py").exists()


def test_too_much_code_is_refused_with_the_figure(
    fusetui: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generated, "MAX_CODE_BYTES", 500)
    told = written(fusetui, tmp_path)
    assert told.code == 2
    assert "the text has 857 bytes" in told.sentence
    assert "more than the limit of 500 bytes" in told.sentence


def test_code_that_is_not_what_torch_wrote_is_refused(
    fusetui: Run, tmp_path: Path
) -> None:
    log = log_of(MODULE).write(tmp_path / "log")
    log.write_text(log.read_text().replace("torch.ones(8)", "torch.ones(9)"))
    out = tmp_path / "out.py"
    told = fusetui(
        "reproduce",
        trace_in(tmp_path),
        *("--op", OP, "--with-generated-code", "--compile-log", log, "--out", out),
    )
    assert (told.code, "was truncated or changed" in told.sentence) == (2, True)


@pytest.mark.parametrize(
    "tail",
    [
        f"TEXT = '''{HOSTILE.replace(chr(39), '')}'''",
        "x = '" + "a" * 5_000_000 + "'",
        "#" + " +=static_cast<int64_t>(" * 100_000,
        "\x1b[31m \u202e \x00",
        "\tx\n\n\n",
    ],
)
def test_hostile_code_is_copied_and_never_in_the_script(
    fusetui: Run, tmp_path: Path, tail: str
) -> None:
    told = written(fusetui, tmp_path, f"{MODULE}{tail}")
    assert told.code == 0
    copied = (tmp_path / "out_generated.py").read_bytes()
    assert copied.decode() == f"{MODULE}{tail}"
    check_plain((tmp_path / "out.py").read_text())


def test_hostile_names_of_files_stay_literals(fusetui: Run, tmp_path: Path) -> None:
    folder = tmp_path / HOSTILE.replace("/", "").replace("\n", "_")
    folder.mkdir()
    told = written(fusetui, folder)
    assert told.code == 0
    check_plain((folder / "out.py").read_text())


def test_a_folder_has_the_code_of_what_was_compiled(
    fusetui: Run, tmp_path: Path
) -> None:
    log = log_of(MODULE).write(tmp_path / "log")
    out = tmp_path / "scripts"
    told = fusetui(
        "reproduce",
        trace_in(tmp_path),
        *("--top", 5, "--with-generated-code", "--compile-log", log, "--out", out),
    )
    assert told.code == 0
    assert {path.name for path in out.glob("*_generated.py")} == {
        "01_Torch_Compiled_Region_0_0_generated.py",
        "02_graph_0_cpp_fused_add_0_generated.py",
    }
    for path in out.glob("*.py"):
        if not path.name.endswith("_generated.py"):
            check_plain(path.read_text())
    assert "_generated" not in (out / "run_all.py").read_text()


async def lines_of(client: Any, **arguments: Any) -> tuple[str, dict[str, Any]]:
    """The text that all pages of an answer of `reproduce` have together, and the last
    page."""
    lines: list[str] = []
    cursor = None
    while cursor is not None or not lines:
        asked = {**arguments, "cursor": cursor, "max_tokens": 6000}
        found = await client.call_tool("reproduce", asked)
        assert not found.is_error, found.content
        page = found.structured_content
        lines += page["lines"]
        cursor = page["cursor"]
    return "\n".join(lines), page


async def test_the_mcp_server_gives_the_same_scripts(
    fusetui: Run, tmp_path: Path
) -> None:
    mcp = pytest.importorskip("mcp")
    from fusetui.commands.agents.server import make_server

    written(fusetui, tmp_path)
    (tmp_path / "log").rename(tmp_path / "trace.compile_log")
    async with mcp.Client(make_server([str(tmp_path)])) as client:
        asked = {"trace": "trace.json", "op": OP}
        text, page = await lines_of(client, **asked)
        check_plain(text)
        written_before = (tmp_path / "out.py").read_text()
        assert text.partition("import")[2] == written_before.partition("import")[2]
        assert page["file"] == "reproduced.py"
        assert page["call"]["name"] == OP
        code, page = await lines_of(client, **asked, generated=True)
        assert code == MODULE
        assert page["file"] == "reproduced_generated.py"
        assert "read it first" in page["about_file"]
        assert str(tmp_path) not in page["about_file"]
        listed = await client.call_tool("reproduce", {"trace": "trace.json"})
        assert listed.structured_content["calls"][0]["kind"] == "compiled"
        for wrong, sentence in (
            ({"op": OP, "row": 3}, "Specify an op, a kernel or a row."),
            ({"op": "mm"}, "No op of this trace is named mm."),
            ({"generated": True}, "generated needs a kernel, an op or a row."),
        ):
            refused = await client.call_tool(
                "reproduce", {"trace": "trace.json", **wrong}
            )
            assert refused.is_error
            assert refused.content[0].text == sentence


async def test_without_a_log_the_server_says_what_to_record(tmp_path: Path) -> None:
    mcp = pytest.importorskip("mcp")
    from fusetui.commands.agents.server import make_server

    trace_in(tmp_path)
    async with mcp.Client(make_server([str(tmp_path)])) as client:
        asked = {"trace": "trace.json", "op": OP}
        text, page = await lines_of(client, **asked)
        check_plain(text)
        assert "Record with TORCH_TRACE=DIR" in page["about_file"]
        refused = await client.call_tool("reproduce", {**asked, "generated": True})
        assert refused.is_error
        assert "Record with TORCH_TRACE=DIR" in refused.content[0].text


@pytest.mark.torch
@pytest.mark.skipif(platform.machine() != "x86_64", reason="other CPUs have these")
def test_code_for_other_vectors_than_this_cpu_has_is_refused(
    fusetui: Run, tmp_path: Path
) -> None:
    """It would write beyond the outputs of its kernels."""
    pytest.importorskip("torch")
    written(fusetui, tmp_path, f"{MODULE}# at::vec:: x0+=static_cast<int64_t>(4L)\n")
    done = run_script(tmp_path / "out.py")
    assert done.code == 2
    assert "for a processor with vectors of 128 bits" in done.err


@pytest.mark.parametrize(
    "name",
    [
        "CompiledFunctionBackward",
        "autograd::engine::evaluate_function: CompiledFunctionBackward",
    ],
)
def test_a_compiled_backward_pass_is_generated_code(
    fusetui: Run, tmp_path: Path, name: str
) -> None:
    recording = Recording()
    recording.slice(name, "cpu_op", 0, 10)
    (call,) = fusetui("reproduce", recording.write(tmp_path), "--json").json["calls"]
    assert (call["kind"], "--with-generated-code" in call["why_not"]) == (
        "compiled",
        True,
    )
