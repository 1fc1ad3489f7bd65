"""What `capture --scrub` removes from traces and records; the rules have their own
tests."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from fusetui.capture import provenance as scrub
from fusetui.capture.errors import CaptureError
from fusetui.capture.provenance import scrub_command

TRACE = """{"host_name": "box-17.lab", "username": "adal",
 "traceEvents": [{"ph": "X", "name": "own/nn.py(3): f", "ts": 4365912618404.960, "dur": 7.50,
  "args": {"file": "/home/adal/my work/train.py", "n": 12345678901234567890}}],
 "traceName": "/home/adal/out.json"}"""


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of the machine that the tests run on, whatever they are."""
    names = {"user": ["adal"], "host": ["box-17"], "secret": ["qwertyui"]}
    monkeypatch.setattr(scrub, "this_machine", lambda: names)


def test_a_trace_has_the_given_name_and_nothing_private(tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_text(TRACE)
    text = scrub.scrubbed_trace(path, "mlp.json")
    assert json.loads(text)["traceName"] == "mlp.json"
    assert not any(word in text for word in ("adal", "box", "home", "my work", "own"))
    assert all(
        digits in text
        for digits in ("4365912618404.960", "7.50", "12345678901234567890")
    )


def test_a_packed_trace_is_taken_too(tmp_path: Path) -> None:
    path = tmp_path / "in.json.gz"
    path.write_bytes(gzip.compress(TRACE.encode()))
    assert "adal" not in scrub.scrubbed_trace(path, "mlp.json")


def test_a_damaged_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_text(TRACE[:-60])
    with pytest.raises(CaptureError, match="damaged"):
        scrub.scrubbed_trace(path, "mlp.json")


def test_a_trace_name_is_replaced_alone() -> None:
    assert scrub.set_trace_name('{"a": "/x/y", "traceName": "/x/z"}', "t") == (
        '{"a": "/x/y", "traceName": "t"}'
    )


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("/home/adal/own/ways.py:build", "dir1/ways.py:build"),
        (
            "ValueError: no /srv/own/x.bin (ways.py, line 3)",
            "ValueError: no dir1/x.bin (ways.py, line 3)",
        ),
        (
            "Two ways, by Adal on box-17 (see own/lib/y.py)",
            "Two ways, by <user1> on <host1> (see dir1/y.py)",
        ),
        ("it said qwertyui", "it said <secret1>"),
        ("/srv/own", "dir1"),
    ],
)
def test_scrubbed_texts_of_a_record_have_no_folders(text: str, public: str) -> None:
    assert scrub.make_scrubber().scrub(text) == public


def test_the_command_of_fusetui_stays_without_folders() -> None:
    words = [
        "/opt/bin/fusetui",
        "capture",
        "/home/adal/x.py:build",
        "--out",
        "own",
        "--batch",
        "3",
    ]
    assert (
        scrub_command(words) == "fusetui capture dir1/x.py:build --out dir2 --batch 3"
    )
    assert scrub_command([*words[:3], "--out=own"]) == (
        "fusetui capture dir1/x.py:build --out=dir2"
    )


def test_the_command_of_another_program_goes() -> None:
    assert scrub_command(["train.py", "--password", "hunter2"]) is None
