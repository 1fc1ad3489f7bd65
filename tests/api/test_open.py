"""`import fusetui as ft; t = ft.open(...)`."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.corpus.files import corpus_path
from tests.hostile import WORST
from tests.plain_scripts import check_plain

import fusetui as ft
from fusetui import api, sample_traces
from fusetui.analysis.diff.compare import diff
from fusetui.analysis.replay.worth import with_worth
from fusetui.analysis.why.answer import why
from fusetui.analysis.why.model import Why, WhyDocument
from fusetui.commands.errors import OUR_SENTENCES
from fusetui.tables.sources import TABLES

Make = Callable[..., Any]
LESSON, OTHER = "lesson:mlp-eager", "lesson:mlp-compiled"


@pytest.fixture
def opened() -> ft.OpenTrace:
    return ft.open(LESSON)


def test_dir_of_the_package_is_all_of_its_public_names() -> None:
    """They are those of `__all__`, whether or not they were imported before."""
    assert dir(ft) == sorted(ft.__all__)
    assert {*ft.__all__} == {*api.__all__, "__version__"}
    assert all(getattr(ft, name) is getattr(api, name) for name in api.__all__)
    assert dir(ft) == sorted(ft.__all__)  # now that all are imported
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ft.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_type_checkers_see_the_same_names() -> None:
    stub = ast.parse(Path(ft.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    lists = [
        ast.literal_eval(node.value)
        for node in stub.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert lists == [ft.__all__]


def test_former_names_are_the_same_classes() -> None:
    assert ft.Opened is ft.OpenTrace
    assert ft.NotATrace is ft.NotATraceError
    assert ft.CannotRead is ft.CannotReadError
    assert ft.CannotWrite is ft.CannotWriteError
    assert ft.WrongQuery is ft.WrongQueryError
    assert ft.NoColumn is ft.NoColumnError
    assert ft.MissingPackage is ft.MissingPackageError
    assert ft.UnknownFormat is ft.UnknownFormatError


def test_open_returns_a_trace_with_its_tables(opened: ft.OpenTrace) -> None:
    assert isinstance(opened, ft.OpenTrace)
    assert type(opened).__name__ == "OpenTrace"


def test_import_of_the_package_imports_nothing_else() -> None:
    program = "import sys, fusetui; print(*(m for m in sys.modules if m.startswith('fusetui')))"
    run = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True
    )
    assert run.stdout.split() == ["fusetui"]


def test_opening_needs_no_dataframe() -> None:
    program = (
        f"import sys, fusetui as ft; ft.open({LESSON!r}).kernels; print(*sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True
    )
    others = {
        "torch",
        "textual",
        "pandas",
        "polars",
        "pyarrow",
        "duckdb",
        "nanoarrow",
        "regex",
    }
    assert "fusetui.api" in run.stdout.split()
    assert not others & {*run.stdout.split()}


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_made_once(opened: ft.OpenTrace, name: str) -> None:
    table = getattr(opened, name)
    assert table.name == name
    assert getattr(opened, name) is table


def test_answers_are_those_of_the_commands(opened: ft.OpenTrace) -> None:
    trace = opened.trace
    expected = with_worth(trace, why(trace))
    assert opened.why() == replace(expected, _wanted=())
    other = ft.open(OTHER)
    assert opened.diff(other) == opened.diff(OTHER) == diff(trace, other.trace)
    assert opened.report is trace.report


def test_public_fields_of_why_are_the_keys_of_its_json_document() -> None:
    """Its public fields are the keys of the document that `why --json` prints."""
    public = [name for name in Why.__struct_fields__ if not name.startswith("_")]
    assert public == [*WhyDocument.__struct_fields__]


def test_bytes_are_the_file() -> None:
    path = sample_traces.path("mlp-eager")
    by_path, by_bytes = ft.open(path), ft.open(path.read_bytes())
    assert [*by_bytes.ops] == [*by_path.ops]
    row = int(by_path.slices.where("op:linear")["row"][0])
    assert by_bytes.trace.args_of(row) == by_path.trace.args_of(row) != {}
    assert repr(by_bytes).startswith("<fusetui trace bytes: ")


def captures_are_joined(replays: Path, capture: Path) -> None:
    with ft.open(replays, captured_by=[str(capture)]) as opened:
        assert opened.ops["captured"].any()


def test_captures_are_joined_as_on_the_command_line() -> None:
    captures_are_joined(corpus_path("serving"), corpus_path("serving-capture"))


def test_another_process_opens_it_again(opened: ft.OpenTrace) -> None:
    again = pickle.loads(pickle.dumps(opened))
    assert [*again.kernels] == [*opened.kernels]
    assert repr(again) == repr(opened)


def test_closed_trace_keeps_tables_that_were_made_and_refuses_others() -> None:
    with ft.open(LESSON) as opened:
        kernels = opened.kernels
    assert len(kernels) == 4
    assert repr(opened) == "<fusetui trace, closed>"
    opened.close()
    for ask in (lambda: opened.kernels, lambda: opened.report, opened.why):
        with pytest.raises(ft.Error, match="closed"):
            ask()


def test_tables_draw_as_text_and_html(opened: ft.OpenTrace) -> None:
    assert repr(opened).startswith("<fusetui trace lesson:mlp-eager: ")
    shown = opened._repr_html_()
    assert opened.notices[0][:40] in shown
    assert all(f"<caption>{name}: " in shown for name in ("kernels", "ops", "gaps"))
    assert "compute" in shown


def test_hostile_names_are_escaped_in_html_and_text(
    trace_of: Make, event: Make, launched: Make, tmp_path: Path
) -> None:
    bad = f"<script>alert(1)</script>{WORST}"
    trace_of(
        [
            event(bad, 0, 50),
            *launched(1, 5, 20, name=bad),
            *launched(2, 30, 40, name=bad),
        ]
    )
    opened = ft.open(tmp_path / "trace.json")
    for shown in (opened._repr_html_(), opened.kernels._repr_html_()):
        assert "<script" not in shown
        assert "\x1b" not in shown
        shown.encode()
    assert opened.kernels["name"].tolist() == [bad.replace("\ud800", "?")]


@pytest.mark.parametrize("cut", [1000, 10_000])
def test_open_reports_events_that_could_not_be_read(
    tmp_path: Path, write: Make, cut: int
) -> None:
    import gzip

    text = gzip.decompress(sample_traces.path("mlp-eager").read_bytes())
    opened = ft.open(write(text[:-cut]))
    assert not opened.report.complete
    assert "ends early" in opened.notices[0]
    assert "1 notice" in repr(opened)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("nowhere.json", ft.CannotReadError),
        (b"{}", ft.NotATraceError),
        (b"", ft.CannotReadError),
        ("sample:nothing", ft.Error),
        ("", ft.Error),
    ],
)
def test_errors_of_open_are_of_their_public_class_and_one_sentence(
    source: str | bytes, kind: type[Exception]
) -> None:
    with pytest.raises(kind) as error:
        ft.open(source)
    assert isinstance(error.value, ft.Error)
    assert isinstance(error.value, OUR_SENTENCES)
    assert "fusetui-" not in str(error.value)  # no file of ours
    assert isinstance(source, str) or str(error.value).startswith("bytes ")


def test_ranks_reads_one_trace_and_refuses_a_pattern_without_any(
    tmp_path: Path,
) -> None:
    found = ft.ranks([sample_traces.path("mlp-eager")])
    assert found.given == 1
    with pytest.raises(ft.Error, match="matches no trace"):
        ft.ranks(str(tmp_path / "*.json"))


def test_ranks_of_what_is_no_trace_raise(tmp_path: Path) -> None:
    with pytest.raises(ft.Error, match="no such file"):
        ft.ranks(str(tmp_path / "nope"))
    with pytest.raises(ft.Error, match="needs the traces of a job"):
        ft.ranks([])
    some = ft.ranks([sample_traces.path("mlp-eager"), tmp_path / "nope"])
    assert (some.given, len(some.left_out)) == (1, 1)


def test_decode_gives_a_record_or_none() -> None:
    found = ft.decode("ampere_sgemm_128x64_tn")
    assert found is not None
    assert (found.family, found.tile_m) == ("cublas-legacy", 128)
    assert ft.decode("nothing that is known") is None


def test_a_script_makes_an_op_again(opened: ft.OpenTrace) -> None:
    by_name = opened.reproduce("mm")
    check_plain(by_name)
    assert '"op": "aten::mm"' in by_name
    assert '"op": "aten::gelu"' in opened.reproduce(kernel="gelu")
    with pytest.raises(ft.Error, match="No op of this trace is named nothing"):
        opened.reproduce("nothing")
    with pytest.raises(ft.Error, match="Specify an op, a kernel or a row"):
        opened.reproduce()
