"""Keys that say what follows, names learnt in one place and found in another, and what
is kept."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Scrub = Callable[..., str]
NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)')
EVENT = {
    "ph": "X",
    "cat": "cpu_op",
    "name": "aten::mm",
    "pid": 1,
    "tid": 1,
    "ts": 1.5,
    "dur": 2,
}


def numbers(text: str) -> list[str]:
    return [number for number in NUMBER.findall(text) if number]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("username", "qwerty"), ("tw_user", "qwerty"), ("started_by", "qwerty"),
        ("host_name", "qwerty"), ("hostname", "qwerty.corp"), ("hosts", ["qwerty", "qwerty2"]),
        ("api_key", "qwerty"), ("dbPassword", "qwerty"), ("secrets", {"a": ["qwerty"]}),
        ("password", 7777777), ("credentials", [{"a": 7777777}]),
        ("cmdline", "qwerty --x"), ("argv", ["a.py", "--b", "qwerty"]),
        ("env", {"A": "qwerty", "B": 7777777}), ("env", ["A=qwerty"]), ("environ", "A=qwerty"),
        ("anything", {"PATH": "/bin", "HOME": "/root", "OWN": "qwerty"}),
        ("anything", ["PATH=/bin", "HOME=/root", "OWN=qwerty"]),
        ("cwd", "qwerty project"), ("cache_dir", "qwerty"), ("output_dir", "/a/qwerty x/y z"),
    ],
)  # fmt: skip
def test_keys_that_tell(key: str, value: Any, event_of: Callable[..., Any]) -> None:
    found = event_of(
        {**EVENT, "args": {key: value, "x": {key: value}}}, metadata={key: value}
    )
    assert not re.search("qwerty|7777777", json.dumps(found))


def test_a_path_of_the_metadata_goes_as_a_whole(kept: Callable[..., Any]) -> None:
    keys = {
        "run": {
            "checkpoint_path": "own run/last step",
            "script_path": "own run/train.py",
        }
    }
    found = kept({**keys, "traceEvents": [EVENT]})["run"]
    assert found == {"checkpoint_path": "dir1", "script_path": "dir2/train.py"}


@pytest.mark.parametrize(
    "key",
    [
        "HF_HUB_CACHE",
        "SLURM_JOB_ID",
        "PT_PROFILER_JOB_NAME",
        "mast_job_name",
        "trace_id",
        "PATH",
    ],
)
def test_keys_of_the_document_that_are_private(
    key: str, kept: Callable[..., Any]
) -> None:
    assert kept({key: "qwerty", "traceEvents": [EVENT]})[key] == "scrubbed"


def test_a_masked_or_empty_value_stays(kept: Callable[..., Any]) -> None:
    keys = {"api_key": "***", "password": "", "host_name": None, "secret": False}
    found = kept({**keys, "traceEvents": [EVENT]})
    assert {key: found[key] for key in keys} == keys


def test_user_host_and_token_of_an_environment_are_scrubbed_everywhere(
    kept: Callable[..., Any],
) -> None:
    variables = {
        "USER": "adal",
        "HOSTNAME": "box17",
        "HF_TOKEN": "qwertyuiop",
        "HOME": "/home/ada2",
    }
    name = "adal ada2 on box17 with qwertyuiop"
    found = kept({"traceEvents": [{**EVENT, "name": name}], "env": variables})
    assert found["env"] == {}
    assert (
        found["traceEvents"][0]["name"] == "<user1> <user2> on <host1> with <secret1>"
    )


def test_names_are_learnt_behind_the_events_too(kept: Callable[..., Any]) -> None:
    text = json.dumps(
        {"traceEvents": [{**EVENT, "name": "run of ada"}], "username": "ada"}
    )
    assert kept(text)["traceEvents"][0]["name"] == "run of <user1>"


def test_a_host_is_learnt_from_the_name_of_the_trace(kept: Callable[..., Any]) -> None:
    name = "./log/box17_851.1752215573993169006.pt.trace.json"
    found = kept({"traceEvents": [{**EVENT, "name": "at box17"}], "traceName": name})
    assert found["traceEvents"][0]["name"] == "at <host1>"
    assert found["traceName"] == "trace.json"


def test_names_of_this_machine_go(scrub: Scrub) -> None:
    document = {"traceEvents": [{**EVENT, "name": "adal box17 qwertyuiop"}]}
    known = {"user": ["adal"], "host": ["box17"], "secret": ["qwertyuiop"]}
    assert "<user1> <host1> <secret1>" in scrub(document, known)


def test_a_common_name_stays_in_ops_but_not_where_it_is_a_name(
    kept: Callable[..., Any],
) -> None:
    found = kept({"username": "max", "traceEvents": [{**EVENT, "name": "aten::max"}]})
    assert found["username"] == "<user1>"
    assert found["traceEvents"][0]["name"] == "aten::max"


def test_placeholders_of_the_file_are_not_given_again(kept: Callable[..., Any]) -> None:
    names = ["/home/ada/x.py(1): f", "dir1/x.py(1): f", "/srv/x.py(1): f"]
    found = kept({"traceEvents": [{**EVENT, "name": name} for name in names]})
    assert [event["name"] for event in found["traceEvents"]] == [
        "dir2/x.py(1): f", "dir1/x.py(1): f", "dir3/x.py(1): f",
    ]  # fmt: skip


def test_keys_that_torch_writes_stay(kept: Callable[..., Any]) -> None:
    keys = {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84}
        ],
        "distributedInfo": {
            "backend": "nccl",
            "rank": 0,
            "pg_config": [{"pg_desc": "default"}],
        },
        "record_shapes": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 1751410836000000000,
        "INFO": [
            "INFO:2024-04-03 18:51:35 1102:1102 CuptiActivityProfiler.cpp:907] Enabling"
        ],
    }
    found = kept({**keys, "traceEvents": [EVENT]})
    del found["traceEvents"]
    assert found == keys


def test_every_number_keeps_its_digits(scrub: Scrub) -> None:
    text = (
        '{"a": 1.50, "b": 1e5, "traceEvents": [{"ph": "X", "name": "f", "ts": 4365912618404.960, '
        '"dur": 7.50, "args": {"n": 12345678901234567890, "x": -0.0, "user": "ada", "e": 1E+3}},\n'
        ' {"ph": "X", "ts": 0.10}], "c": 2.0}'
    )
    assert numbers(scrub(text)) == numbers(text)


def test_the_text_of_events_without_a_telling_key_stays(scrub: Scrub) -> None:
    events = '[ {"ph":"X" ,\n "name":"a\\/b\\u0041","ts": 1} ,{ } ]'
    assert json.loads(scrub(events)) == json.loads(events)
    assert '{"ph":"X" ,\n "name":"a\\/b\\u0041","ts": 1}' in scrub(events)


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ('{"traceEvents": [{"ph": "X", "name": "a"}, {"ph": "X", "name": "/home/ada/x.py"', 1),
        ('{"traceEvents": [{"ph": "X", "name": "a"}, {"ph" "b"}, {"ph": "X", "name": "c"}]}', 2),
        ('{"traceEvents": [{"ph": "X", "ts": NaN, "name": "/home/ada/x.py"}]}', 1),
        ('{"traceEvents": [{"ph": "X", "name": "ada\\lib\\x.py(3): f", "user": "ada"},]}', 1),
        ('{"traceEvents": [{"ph": "X", "name": "\udcff/home/ada/x.py"}]}', 1),
        ('{"traceEvents": [{"ph": "X", "name": "/home/ada/\nx.py"}]}', 1),
        ('[{"ph": "X", "name": "/home/ada/x.py"},\n{"ph": "X"}', 2),
        ('{"user": "ada" "x": 1, "traceEvents": [{"ph": "X", "name": "a"}]}', 1),
        ('{"traceEvents": [{"ph": "X", "name": "a"}], "user": "ada" "x": 1}', 1),
        ('{"traceEvents": [{"ph": "X"}]}{"user": "ada"}', 1),
        ('{"traceEvents": [{"ph": "X", "args": ' + '{"user": ' * 3000 + '"ada"' + "}" * 3000 + "}, "
         '{"ph": "X", "name": "b"}]}', 1),
    ],
    ids=["cut", "damaged", "NaN", "backslash", "bytes", "control", "open list", "head", "tail",
         "second", "deep"],
)  # fmt: skip
def test_of_a_damaged_document_only_what_was_read_is_written(
    text: str, events: int, scrub: Scrub
) -> None:
    found = scrub(text)
    document = json.loads(found)
    assert "ada" not in found
    assert (
        len(document if isinstance(document, list) else document["traceEvents"])
        == events
    )


@pytest.mark.parametrize("constant", ["NaN", "-Infinity"])
def test_a_time_that_is_no_number_stays_none(constant: str, scrub: Scrub) -> None:
    text = (
        f'{{"traceEvents": [{{"ph": "X", "ts": 1, "dur": {constant}, "user": "ada"}}]}}'
    )
    event = json.loads(scrub(text))["traceEvents"][0]
    assert event["dur"] == constant


WORDS = st.sampled_from(
    ["aten::mm", "/home/ada/x.py", "torch/nn/x.py(1): f", "dir1", "<user1>", "ada", "Ada", "box17",
     "\\", '"', "\n", "é", "\ud800", "https://a.b.com/c?d", "HF_TOKEN=", "a@b.com", "10.1.2.3", "=",
     " ", "user", "secret", "name", "C:\\a\\b", "é/ü/x.py", "1", "", "python x.py --y", "[", "%2F"]
)  # fmt: skip
TEXTS = st.lists(WORDS, max_size=4).map("".join)
KEYS = TEXTS | st.sampled_from(
    ["user", "host_name", "name", "args", "env", "PATH", "HOME", "token"]
)
VALUES = st.recursive(
    TEXTS
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
    | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=6,
)
EVENTS = st.lists(st.dictionaries(KEYS, VALUES, max_size=4), max_size=4)


@settings(
    max_examples=80,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(events=EVENTS, keys=st.dictionaries(KEYS, VALUES, max_size=3))
def test_any_document_stays_json_and_is_the_same_when_scrubbed_again(
    events: list[Any], keys: dict[str, Any], scrub: Scrub
) -> None:
    once = scrub({**keys, "traceEvents": events})
    again = scrub(once)
    assert len(json.loads(once)["traceEvents"]) == len(events)
    assert (json.loads(again), numbers(again)) == (json.loads(once), numbers(once))


@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(
    names=st.lists(TEXTS, min_size=1, max_size=6),
    values=st.lists(st.floats(0, 1e9), max_size=5),
)
def test_figures_of_any_events_stay(
    names: list[str], values: list[float], scrub: Scrub
) -> None:
    events = [{**EVENT, "name": name, "args": {"n": values}} for name in names]
    text = json.dumps({"traceEvents": events, "username": "ada", "host_name": "box17"})
    assert numbers(scrub(text)) == numbers(text)
