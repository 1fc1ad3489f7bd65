"""A fixed number of the fuzzer's inputs of each kind; `make fuzz` tries others.

FUSETUI_FUZZ=5 tries five times as many of the kinds that are cheap.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from fuzz import (
    app,
    compile_log,
    flight,
    interrupt,
    nsys,
    pftrace,
    reproduce,
    scanner,
    scrub,
    snapshot,
    terminal,
    writing,
)
from fuzz import zip as archives
from fuzz.case import case
from fuzz.examine import examine
from fuzz.large import FAMILIES, examine_family
from tests import starting
from tests.places import ROOT

from fusetui.trace.read import scanned

SEED = 1
TIMES = int(os.environ.get("FUSETUI_FUZZ", "1"))
FAMILY_BYTES = 20_000  # of one thing many times


@pytest.mark.parametrize("first", range(0, 30 * TIMES, 10))
def test_an_input_is_read_exactly_or_its_losses_are_counted(first: int) -> None:
    for each in range(first, first + 10):
        # shown when it fails: what to call the fuzzer with
        print(f"seed {SEED}, first {each}")
        examine(case(SEED, each), asked=0.5)


@pytest.mark.parametrize("name", FAMILIES)
def test_one_thing_many_times_takes_bounded_time_and_memory(name: str) -> None:
    examine_family(name, size=FAMILY_BYTES)


@pytest.mark.parametrize("number", range(3))
def test_random_keys_never_crash_the_app(number: int) -> None:
    print(f"kind app, seed {SEED}, first {number}")
    app.attempt(SEED, number)


def test_archives_are_read_exactly_or_up_to_their_damage() -> None:
    for number in range(25):
        print(f"kind zip, seed {SEED}, first {number}")
        archives.attempt(SEED, number)


def test_an_export_of_nsight_systems_is_read_or_its_losses_are_counted() -> None:
    for number in range(40 * TIMES):
        print(f"kind nsys, seed {SEED}, first {number}")
        nsys.attempt(SEED, number)


def test_pftraces_are_read_exactly_or_their_losses_are_counted() -> None:
    for number in range(40 * TIMES):
        print(f"kind pftrace, seed {SEED}, first {number}")
        pftrace.attempt(SEED, number)


def test_memory_snapshots_are_what_pickle_finds_or_refused() -> None:
    for number in range(40 * TIMES):
        print(f"kind snapshot, seed {SEED}, first {number}")
        snapshot.attempt(SEED, number)


def test_secrets_are_warned_of_and_nothing_of_them_is_left() -> None:
    for number in range(60):
        print(f"kind scrub, seed {SEED}, first {number}")
        scrub.attempt(SEED, number)


@pytest.mark.parametrize("number", range(4))
def test_a_server_that_misbehaves_costs_nothing_that_arrived(number: int) -> None:
    pytest.importorskip(
        "aiohttp", reason="needs aiohttp, the driver of fsspec for http://"
    )
    from fuzz import url

    print(f"kind url, seed {SEED}, first {number}")
    url.attempt(SEED, number)


@pytest.mark.parametrize("number", [2, 12])
def test_no_process_outlives_its_terminal(number: int) -> None:
    print(f"kind terminal, seed {SEED}, first {number}")
    try:
        terminal.attempt(SEED, number)
    finally:
        starting.end()


def test_files_written_from_damaged_traces_have_their_form() -> None:
    for number in range(50 * TIMES):
        print(f"kind writing, seed {SEED}, first {number}")
        writing.attempt(SEED, number)


@pytest.mark.parametrize("name", writing.WRITERS)
def test_every_writer_writes_a_whole_trace_and_through_no_link(name: str) -> None:
    data = (ROOT / "sample_traces/lessons/linear-eager.json.gz").read_bytes()
    became = {
        writing.examine_writer(name, data, Random(f"{name} {number}"))
        for number in range(8)
    }
    assert f"{name} wrote" in became
    assert "refused" in became


@pytest.mark.parametrize("number", range(3))
def test_ctrl_c_at_the_start_gives_no_traceback_of_ours(number: int) -> None:
    print(f"kind interrupt, seed {SEED}, first {number}")
    interrupt.attempt(SEED, number)


@pytest.mark.skipif(scanned.scan is None, reason="the scanner was not compiled")
def test_the_scanner_reads_what_python_reads() -> None:
    for number in range(200):
        print(f"kind scanner, seed {SEED}, first {number}")
        scanner.attempt(SEED, number)


def test_dumps_of_the_flight_recorder_end_in_an_answer_or_a_sentence() -> None:
    for number in range(40):
        print(f"kind flight, seed {SEED}, first {number}")
        flight.attempt(SEED, number)


def test_scripts_of_hostile_ops_hold_literals_alone() -> None:
    for number in range(40):
        print(f"kind reproduce, seed {SEED}, first {number}")
        reproduce.attempt(SEED, number)


def test_logs_of_torch_compile_end_in_an_answer_or_a_sentence() -> None:
    for number in range(20):
        print(f"kind compile_log, seed {SEED}, first {number}")
        compile_log.attempt(SEED, number)
