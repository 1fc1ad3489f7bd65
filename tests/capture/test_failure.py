"""One sentence for every way a variant can fail."""

from pathlib import Path
from typing import Any

import pytest

from fusetui.capture.errors import describe_failure

torch = pytest.importorskip("torch", reason="names torch's own errors")
pytestmark = pytest.mark.torch


def test_the_innermost_error_is_told_in_one_line() -> None:
    outer = RuntimeError("backend failed")
    outer.__cause__ = ValueError("dim must be even\n\nSet TORCH_LOGS for more")
    assert describe_failure(outer) == "ValueError: dim must be even"


def test_memory_is_told_in_plain_words() -> None:
    assert "ran out of GPU memory" in describe_failure(
        torch.OutOfMemoryError("CUDA: 80 GiB")
    )


def test_a_missing_compiler_is_told_in_plain_words() -> None:
    from torch._inductor.exc import InvalidCxxCompiler

    outer = RuntimeError("inductor")
    vars(outer)["inner_exception"] = InvalidCxxCompiler()
    assert "install g++ or clang" in describe_failure(outer)


def test_a_long_message_is_cut() -> None:
    assert len(describe_failure(ValueError("x" * 1000))) == 300


def test_an_error_without_words_has_its_name() -> None:
    assert describe_failure(ValueError()) == "ValueError"


def test_memory_of_a_cpu_is_told_in_plain_words() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**60)
    assert describe_failure(raised.value) == "it ran out of memory: use smaller shapes."


def test_the_users_line_is_told(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("def f(x):\n    return x @ x\n")
    namespace: dict[str, Any] = {}
    exec(compile(path.read_text(), path, "exec"), namespace)
    with pytest.raises(RuntimeError) as raised:
        namespace["f"](torch.ones(2, 3))
    assert describe_failure(raised.value).endswith("(train.py, line 2)")


def test_a_failed_compilation_is_told_as_one() -> None:
    from torch._dynamo.exc import BackendCompilerFailed

    def backend(graph: Any, inputs: Any) -> Any:
        raise ValueError("no such op")

    with pytest.raises(BackendCompilerFailed) as raised:
        torch.compile(lambda x: x + 1, backend=backend)(torch.ones(1))
    assert (
        describe_failure(raised.value)
        == "it could not be compiled: ValueError: no such op"
    )
