"""Only regular files at or below the path that the user names are opened."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
from tests.compile_logs import Kernel, Line, Log

from fusetui.trace.compile_log.files import find_log_files, read_text_in
from fusetui.trace.compile_log.log import (
    code_of,
    read_compile_log,
    stacks_of,
    wrapper_in,
)
from fusetui.trace.model.errors import CannotReadError, NotATraceError

KERNELS = [Kernel("cpp_fused_add_0", (Line(3, "y = x + 1"),))]


def test_logs_are_recognized_by_content_in_folders_below(tmp_path: Path) -> None:
    first = Log().metrics().write(tmp_path, "dedicated_log_torch_trace_rank_0_x.log")
    second = Log().metrics().write(tmp_path / "inner", "other.txt")
    (tmp_path / "notes.log").write_text("nothing of that kind")
    assert find_log_files(str(tmp_path)).logs == tuple(
        sorted(map(str, (first, second)))
    )


def test_links_are_left_out(tmp_path: Path) -> None:
    outside = Log().metrics().write(tmp_path / "outside")
    folder = tmp_path / "named"
    folder.mkdir()
    (folder / "a.log").symlink_to(outside)
    (folder / "b").symlink_to(outside.parent, target_is_directory=True)
    files = find_log_files(str(folder))
    assert files.is_empty
    assert files.links == 2
    with pytest.raises(NotATraceError, match="Links are not followed"):
        read_compile_log(str(folder))


@pytest.mark.skipif(sys.platform == "win32", reason="no such files")
def test_pipes_and_sockets_are_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.log")
    Log().metrics().write(tmp_path, "b.log")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(os.path.relpath(tmp_path / "c.log"))
        assert find_log_files(str(tmp_path)).logs == (str(tmp_path / "b.log"),)


def test_urls_and_missing_files_are_refused(tmp_path: Path) -> None:
    for path in ("https://example.com/x.log", "-", str(tmp_path / "none")):
        with pytest.raises(CannotReadError):
            find_log_files(path)


HOSTILE_PATHS = (
    "/etc/passwd",
    "../../secret.py",
    "file:///etc/passwd",
    "//host/share/x.py",
    "~/.ssh/id_rsa",
    "x\x1b[31m.py",
    "",
)


@pytest.mark.parametrize("hostile", HOSTILE_PATHS)
def test_paths_in_a_log_are_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hostile: str
) -> None:
    (tmp_path / "secret.py").write_text("secret")
    kernels = [Kernel("triton_poi_fused_add_0", KERNELS[0].lines, (), hostile or "/x")]
    folder = tmp_path / "a" / "b"
    Log().graph("k", kernels, path=hostile or "/y").write(folder)
    opened: list[str] = []

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            opened.append(os.path.abspath(os.fsdecode(arguments[0])))

    _hooks.append(hook)
    try:
        log = read_compile_log(str(folder))
        graph = log.graphs[0]
        assert wrapper_in(log, graph) is not None
        assert stacks_of(log, graph)
        assert log.compilations == ()
    finally:
        _hooks.remove(hook)
    beyond = [path for path in opened if not path.startswith(str(folder))]
    assert not [path for path in beyond if "passwd" in path or "secret" in path]
    assert {path for path in opened if path.startswith(str(tmp_path))} == {
        str(folder / "torch_trace.log")
    }


_hooks: list[object] = []


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    for hook in _hooks:
        hook(event, arguments)  # type: ignore[operator]


sys.addaudithook(_audit)


def test_folders_of_torch_compile_debug(tmp_path: Path) -> None:
    folder = tmp_path / "run_1" / "torchinductor" / "model__0_inference_0.0"
    folder.mkdir(parents=True)
    (folder / "output_code.py").write_text("# AOT ID: ['0_inference']\n")
    log = read_compile_log(str(tmp_path))
    assert code_of(log, log.graphs[0]).startswith("# AOT ID")
    assert stacks_of(log, log.graphs[0]) == {}


def test_a_link_in_a_folder_of_a_graph_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "graph"
    folder.mkdir()
    (folder / "output_code.py").symlink_to(tmp_path / "secret")
    assert read_text_in(str(folder), "output_code.py", 100) == ""
