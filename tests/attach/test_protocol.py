"""Datagrams are decoded as libkineto writes them, and nothing else is."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.attach.fake_job import question

from fusetui.attach.daemon_socket import (
    ConfigRequest,
    RecordingRequest,
    Registered,
    answer,
    configuration,
    decoded,
    written,
)

INTS = st.integers(-(2**31), 2**31 - 1)
SEEN = bytes.fromhex(  # of torch 2.13, an x86 machine
    "2400000000000000" + "726571".ljust(64, "0")
    + "03000000050000000000000000000000186900000e6900000d690000e8540000e7540000"
)  # fmt: skip


def test_datagram_of_torch_is_decoded() -> None:
    found = decoded(SEEN)
    assert found == ConfigRequest(3, 0, (26904, 26894, 26893, 21736, 21735))
    assert isinstance(found, ConfigRequest)
    assert found.is_free
    assert not ConfigRequest(1, 0, (1,)).is_free


@given(st.lists(INTS, min_size=1, max_size=20), INTS, st.binary(min_size=1, max_size=9))
def test_question_of_libkineto_is_decoded_only_at_its_exact_size(
    pids: list[int], kind: int, more: bytes
) -> None:
    """With more behind it, or less, it is none."""
    sent = question(*pids, kind=kind)
    assert decoded(sent) == ConfigRequest(kind, 0, tuple(pids))
    assert decoded(sent + more) is None
    assert decoded(sent[: -len(more)]) is None


@given(INTS, INTS, st.integers(-(2**63), 2**63 - 1))
def test_registration_of_libkineto_is_decoded(gpu: int, pid: int, job: int) -> None:
    body = struct.pack("=iiq", gpu, pid, job)
    assert decoded(struct.pack("=Q32s", 16, b"ctxt") + body) == Registered(
        gpu, pid, job
    )
    assert decoded(struct.pack("=Q32s", 16, b"other") + body) is None


@given(st.binary(max_size=100))
def test_garbage_is_no_message(sent: bytes) -> None:
    assert decoded(sent) is None
    assert decoded(struct.pack("=Q32s", len(sent), b"req") + sent[:15]) is None


@given(st.binary(max_size=300))
def test_an_answer_has_its_size(body: bytes) -> None:
    sent = answer("req", body)
    assert struct.unpack_from("=Q", sent) == (len(body),)
    assert (sent[8:12], len(sent), sent[40:]) == (b"req\0", 40 + len(body), body)


def test_a_configuration_has_what_is_wished() -> None:
    told = configuration(
        RecordingRequest(300, extras=frozenset({"stack"})), Path("/tmp/a.json"), 1234
    )
    assert told.splitlines() == [
        "ACTIVITIES_LOG_FILE=/tmp/a.json",
        "PROFILE_START_TIME=1234",
        "ACTIVITIES_DURATION_MSECS=300",
        "ACTIVITIES_WARMUP_PERIOD_SECS=1",
        "PROFILE_WITH_STACK=true",
    ]
    steps = configuration(
        RecordingRequest(steps=3, extras=frozenset()), Path("/tmp/a.json")
    )
    assert "ACTIVITIES_ITERATIONS=3" in steps
    assert "DURATION" not in steps
    assert written(Path("/tmp/a.b.json"), 7) == Path("/tmp/a.b_7.json")


@pytest.mark.parametrize(
    "name", ["a b", "a#b", "a\nACTIVITIES_ENABLED=false", "a=b", "\x1b"]
)
def test_a_name_that_would_be_read_otherwise_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="/tmp/"):
        configuration(RecordingRequest(), Path(f"/tmp/{name}.json"))
