"""Whose code a Python frame is."""

from __future__ import annotations

import pytest

from fusetui.trace.program.own_code import function_of, is_in, is_own


@pytest.mark.parametrize(
    ("name", "file", "line", "function"),
    [
        ("my_model.py(42): forward", "my_model.py", 42, "forward"),
        ("odd (1)/a(2).py(3): <lambda>", "odd (1)/a(2).py", 3, "<lambda>"),
        ("C:/work/a.py(7): f(x): g", "C:/work/a.py", 7, "f(x): g"),
        ("<frozen os>(709): __getitem__", "<frozen os>", 709, "__getitem__"),
    ],
)
def test_frame_name_gives_file_line_and_function(
    name: str, file: str, line: int, function: str
) -> None:
    assert function_of(name) == (file, line, function)


@pytest.mark.parametrize(
    "name",
    [
        "<built-in method view of Tensor object at 0x7f>",
        "nn.Module: Linear_0",
        "",
        "a(1)",
    ],
)
def test_names_that_are_no_frames_give_no_function(name: str) -> None:
    assert function_of(name) is None


OWN = """my_model.py
profile.py
src/train/loop.py
/home/me/project/model.py
transformers/models/qwen2/modeling_qwen2.py
<stdin>
<ipython-input-3-0a1b>"""
OTHERS = """torch/nn/modules/linear.py
contextlib.py
_collections_abc.py
multiprocessing/process.py
numpy/core/_methods.py
/usr/lib/python3/dist-packages/yaml/loader.py
/opt/conda/lib/python3.11/site-packages/my_model.py
/usr/lib/python3.11/runpy.py
C:\\env\\Lib\\site-packages\\x.py
/tmp/torchinductor_me/ab/cabc.py
<frozen os>
<string>
<eval_with_key>.12"""


@pytest.mark.parametrize("file", OWN.splitlines())
def test_files_of_the_user_are_own_code(file: str) -> None:
    assert is_own(file)


@pytest.mark.parametrize("file", OTHERS.splitlines())
def test_files_of_libraries_are_not_own_code(file: str) -> None:
    assert not is_own(file)


@pytest.mark.parametrize(
    ("file", "wanted", "found"),
    [
        ("src/my_model.py", "my_model.py", True),
        ("src/my_model.py", "./src/my_model.py", False),
        ("src/my_model.py", "model.py", False),
        ("/home/me/src/a.py", "me/src", True),
        ("/home/me/src/a.py", "/home/me/", True),
    ],
)
def test_file_is_matched_by_its_end_or_a_folder(
    file: str, wanted: str, found: bool
) -> None:
    assert is_in(file, wanted) == found
