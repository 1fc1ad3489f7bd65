"""Files in a folder of traces that are none themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusetui.commands.errors import CommandError
from fusetui.commands.sources import one_trace, traces
from fusetui.sample_traces import lessons

TRACE = lessons.path("mlp-eager").read_bytes()


def test_settings_of_a_server_are_not_taken_for_a_trace(tmp_path: Path) -> None:
    (tmp_path / "a-TP-0.trace.json.gz").write_bytes(TRACE)
    (tmp_path / "server_args.json").write_text('{"model_path": "m", "tp_size": 1}')
    assert one_trace(str(tmp_path)) == str(tmp_path / "a-TP-0.trace.json.gz")


@pytest.mark.parametrize(
    "content", ["", '{"traceEvents": [{"ph": "X"', "[]", '{"traceEvents": []}']
)
def test_json_that_may_be_a_trace_counts_as_a_second_trace(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "a.json.gz").write_bytes(TRACE)
    (tmp_path / "b.json").write_text(content)
    with pytest.raises(CommandError, match="2 traces"):
        one_trace(str(tmp_path))


def test_folder_of_settings_alone_lists_them(tmp_path: Path) -> None:
    (tmp_path / "server_args.json").write_text('{"model_path": "m"}')
    assert traces(str(tmp_path)) == [str(tmp_path / "server_args.json")]
