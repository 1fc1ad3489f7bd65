"""Dumps from the debug server of a job."""

from __future__ import annotations

import json

import pytest
from tests.debug_server import RankAnswer, debug_server, dumps_of, page, stacks
from tests.flight_dumps import Job
from tests.ports import free_port

from fusetui.trace.flight.debug_server import (
    NoDebugServerError,
    TakenDump,
    dumps_in,
    dumps_of_server,
)
from fusetui.trace.flight.python_stacks import STACKS_KEY

NO_ENTRIES = RankAnswer('{"entries": []}')


def job_of_two() -> Job:
    job = Job(2, "gloo")
    job.everywhere()
    return job


def test_each_rank_of_the_page_gives_its_dump() -> None:
    dumps = dumps_in(page(dumps_of(job_of_two())))
    assert [(dump.rank, dump.entries) for dump in dumps] == [(0, 1), (1, 1)]


def test_a_name_that_looks_like_markup_is_kept() -> None:
    """torch puts the JSON into the page as it is."""
    job = Job(1)
    job.issue(0, "recv 0<-1")
    job.issue(0)["frames"][1]["name"] = "<lambda>"
    (dump,) = dumps_in(page(dumps_of(job)))
    assert json.loads(dump.text) == json.loads(json.dumps(job.dump(0)))


def test_a_page_that_escapes_its_text_is_read_too() -> None:
    (dump,) = dumps_in(page({0: RankAnswer("{&quot;entries&quot;: [1]}")}))
    assert dump == TakenDump(rank=0, text=b'{"entries": [1]}', entries=1)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            RankAnswer("ConnectionError", 503),
            "it did not answer the debug server (status 503)",
        ),
        (RankAnswer("[]"), "the debug server shows no dump for it"),
        (RankAnswer("{"), "the debug server shows no dump for it"),
    ],
)
def test_a_rank_without_a_dump_says_why(answer: RankAnswer, why: str) -> None:
    (dump,) = dumps_in(page({3: answer}))
    assert dump == TakenDump(rank=3, text=b"", entries=0, why_missing=why)


def test_only_the_recorder_that_has_entries_is_taken() -> None:
    pages = {
        "/fr_trace_json": page(dumps_of(job_of_two())),
        "/fr_trace_nccl_json": page({0: NO_ENTRIES, 1: NO_ENTRIES}),
    }
    with debug_server(pages) as address:
        assert list(dumps_of_server(address)) == ["cpu"]


def test_the_stacks_of_the_ranks_are_put_into_their_dumps() -> None:
    pages = {
        "/fr_trace_json": page(dumps_of(job_of_two())),
        "/fr_trace_nccl_json": page({}),
        "/stacks": page({1: stacks(("job.py", 9, "train"))}),
    }
    with debug_server(pages) as address:
        first, second = dumps_of_server(address)["cpu"]
    assert STACKS_KEY not in json.loads(first.text)
    assert 'File "job.py", line 9' in json.loads(second.text)[STACKS_KEY]


def test_an_address_where_nobody_listens_is_named() -> None:
    address = f"localhost:{free_port()}"
    with pytest.raises(NoDebugServerError, match=f"answers at {address}: "):
        dumps_of_server(address)


def test_a_server_without_these_pages_is_none_of_torch() -> None:
    with (
        debug_server({}) as address,
        pytest.raises(NoDebugServerError, match="status 404"),
    ):
        dumps_of_server(address)


def test_a_server_whose_pages_name_no_rank_is_none_of_torch() -> None:
    pages = {"/fr_trace_json": b"hello", "/fr_trace_nccl_json": b"hello"}
    with (
        debug_server(pages) as address,
        pytest.raises(NoDebugServerError, match="lists no rank"),
    ):
        dumps_of_server(address)


@pytest.mark.parametrize(
    "address", ["https://host:1", "http://", "http://host:99999", "http://[::1"]
)
def test_text_that_is_no_address_of_a_debug_server_is_refused(address: str) -> None:
    with pytest.raises(NoDebugServerError, match="not a debug server address"):
        dumps_of_server(address)
