"""Damaged files: what can be read is read, the rest is counted, with its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fusetui.analysis.questions.summary import summary
from fusetui.trace import Trace, open_trace

Write = Callable[[str | bytes], Path]

OP = '{"ph":"X","cat":"cpu_op","name":"%s","pid":1,"tid":1,"ts":%d,"dur":5.000%s}'
GOOD = OP % ("good", 10, ',"args":{"External id":1}')
LAST = OP % ("last", 90, "")

CASES: dict[str, tuple[str | bytes, str | None]] = {
    "unescaped quote": (OP % ('{"device": "cpu"}(12): run', 20, ""), None),
    "windows path": (OP % (r"torch\cuda\__init__.py(1)", 20, ""), r"torch\cuda\__init__.py(1)"),
    "path with valid escapes": (OP % (r"C:\new\table\c.py", 20, ""), r"C:\new\table\c.py"),
    "broken unicode escape": (OP % (r"a\uZZ", 20, ""), r"a\uZZ"),
    "raw newline": (OP % ("a\nb", 20, ""), "a\nb"),
    "control character": (OP % ("a\x1bb", 20, ""), "a\x1bb"),
    "invalid utf-8": ((OP % ("a?b", 20, "")).encode().replace(b"?", b"\xff"), "a\ufffdb"),
    "inf": (OP % ("x", 20, ',"args":{"bw":inf}'), "x"),
    "nan": (OP % ("x", 20, ',"args":{"bw":-nan, "b":NaN, "c":Infinity}'), "x"),
    "hex number": (OP % ("x", 20, ',"args":{"at":0x262ca50}'), "x"),
    "bare word": (OP % ("x", 20, ',"args":{"type":ncclFloat32}'), None),
    "comma in args": (OP % ("x", 20, ',"args":{"a":1, }'), "x"),
    "no dur": ('{"ph":"X","name":"x","pid":1,"tid":1,"ts":20}', "x"),
    "negative dur": ('{"ph":"X","name":"x","pid":1,"tid":1,"ts":20,"dur":-4}', "x"),
    "string times": ('{"ph":"X","name":"x","pid":1,"tid":1,"ts":"20.5","dur":"5"}', "x"),
    "null fields": ('{"ph":"X","name":"x","cat":null,"pid":null,"ts":20,"dur":null}', "x"),
    "args no object": (OP % ("x", 20, ',"args":[1,2]'), "x"),
    "number as name": ('{"ph":"X","name":17,"pid":1.5,"tid":true,"ts":20,"dur":1}', "17"),
    "lone surrogates": (OP % (r"a\ud800", 20, r',"args":{"\udfff":"\ud800"}'), "a?"),
    "huge numbers": (OP % ("x", 20, ',"args":{"correlation":1e400,"a":99999999999999999999}'), "x"),
    "quoted inf": (OP % ("x", 20, ',"args":{"bw":"inf","bus":"N/A"}'), "x"),
    "string ids": ('{"ph":"X","name":"x","pid":"CPU functions","tid":"a:b","ts":20,"id":"7"}', "x"),
    "correlation in quotes": (OP % ("x", 20, ',"args":{"correlation":"7"}'), "x"),
    "correlation no number": (OP % ("x", 20, ',"args":{"correlation":"N/A"}'), "x"),
    "over 64 bits": (OP % ("x", 20, ',"args":{"External id":18446744073709551616}'), "x"),
    "minus one": (OP % ("x", 20, ',"args":{"External id":-1,"Sequence number":-1}'), "x"),
    "huge tid": ('{"ph":"X","name":"x","pid":1,"tid":99999999999999999999,"ts":20}', "x"),
    "escaped quote turned": (OP % ("x", 20, ',"args":{"cmd":"say /"hi/""}'), None),
    "time is inf": ('{"ph":"X","name":"x","pid":1,"tid":1,"ts":inf,"dur":1}', None),
    "key without quote": ('{"ph":"X","name":"x","pid":1,tid": 0,"ts":20}', None),
    "value without a key": ('{"ph":"X","name":"x","pid":1,"ts":20,"dur"}', None),
    "duplicate keys": (OP % ("x", 20, ',"args":{"a":1,"a":2},"name":"y"'), "y"),
    "time too large": ('{"ph":"X","name":"x","pid":1,"tid":1,"ts":1e30,"dur":1}', None),
    "time no number": ('{"ph":"X","name":"x","pid":1,"tid":1,"ts":"soon","dur":1}', None),
    "no phase": ('{"name":"x","ts":20}', None),
    "no object": ("17", None),
    "deep": (OP % ("x", 20, ',"args":{"a":' + "[" * 200_000 + "]" * 200_000 + "}"), None),
}  # fmt: skip


def names(trace: Trace) -> list[str]:
    return [
        trace.name_of(row)
        for row in sorted(range(len(trace)), key=lambda r: trace.order[r])
    ]


@pytest.mark.parametrize("case", CASES)
def test_the_neighbors_survive(write: Write, case: str) -> None:
    element, name = CASES[case]
    middle = element if isinstance(element, bytes) else element.encode("utf-8")
    head = b'{"traceEvents":[\n' + GOOD.encode() + b",\n"
    path = write(head + middle + b",\n" + LAST.encode() + b'\n],"after":1}')
    trace = open_trace(str(path))
    read = [name] if name is not None else []
    assert names(trace) == ["good", *read, "last"]
    assert trace.report.events == 3
    assert [skip.byte for skip in trace.report.skipped] == ([] if read else [len(head)])
    assert trace.report.complete
    assert trace.keys == {"after": 1}
    assert summary(trace).slices == len(trace)


def test_string_times_are_exact(trace_of: Callable[..., Trace]) -> None:
    trace = trace_of('[{"ph":"X","name":"x","ts":"1712195495519689.047","dur":"0.5"}]')
    assert (trace.start[0], trace.dur[0]) == (1712195495519689047, 500)


def test_negative_durations_are_counted(trace_of: Callable[..., Trace]) -> None:
    trace = trace_of('[{"ph":"X","name":"x","ts":1,"dur":-4}]')
    assert trace.dur.tolist() == [0]
    assert trace.report.negative_durations == 1


def test_empty_elements_between_commas_are_skipped(
    trace_of: Callable[..., Trace],
) -> None:
    trace = trace_of(f'{{"traceEvents":[,{GOOD},,\n{LAST},]}}')
    assert names(trace) == ["good", "last"]
    assert not trace.report.skipped


def test_missing_quote_of_a_key(trace_of: Callable[..., Trace]) -> None:
    trace = trace_of(
        f'{{"traceEvents":[{GOOD},{{"ph":"X", "name":"x", tid": 0}},\n{LAST}]}}'
    )
    assert names(trace) == ["good", "last"]
    assert len(trace.report.skipped) == 1


def test_a_plugin_without_quotes_and_bracket(trace_of: Callable[..., Trace]) -> None:
    """As written by NCCL's example profiler: bare words, hex numbers, no end."""
    lines = [
        '{"name": "AllReduce", "cat": "COLL", "ph": "b", "id": 0, "pid": 5, "tid": 1, "ts": 10.5,'
        ' "args": {"SeqNum": 0, "CommHash": 16493612083293574209, "Count": 1024}}',
        '{"name": "AllReduce", "cat": "COLL", "ph": "e", "id": 0, "pid": 5, "tid": 1, "ts": 19.5}',
        '{"name": "Send", "cat": "P2P", "ph": "b", "id": 1, "pid": 5, "tid": 1, "ts": 20,'
        ' "args": {"Datatype": ncclFloat32, "Buffer": 0x262ca50}}',
        '{"name": "Recv", "cat": "P2P", "ph": "b", "id": 2, "pid": 5, "tid": 1, "ts": 21,'
        ' "args": {"Buffer": 0x262ca50}}',
        "{}",
    ]
    trace = trace_of("[\n" + ",\n".join(lines) + ",\n")
    assert names(trace) == ["AllReduce", "Recv"]
    assert trace.dur.tolist() == [9000, 0]
    assert (
        trace.report.events,
        len(trace.report.skipped),
        trace.report.unfinished,
    ) == (5, 1, 1)


def test_damaged_keys_around_the_events_do_not_hide_sound_ones(
    trace_of: Callable[..., Trace],
) -> None:
    head = '"user": "say "hi"", "deviceProperties": [{"id": 0, "name": "A"}]'
    trace = trace_of(f'{{{head}, "traceEvents": [{GOOD}], "WARNING": ["a "b" c"]}}')
    assert names(trace) == ["good"]
    assert trace.keys["deviceProperties"] == [{"id": 0, "name": "A"}]
    assert trace.report.complete


@pytest.mark.parametrize("form", ['{"traceEvents": [%s], "a": "]["}', "[%s]"])
def test_second_document_behind_the_first_is_not_read_but_reported(
    trace_of: Callable[..., Trace], form: str
) -> None:
    """The second one is not read, and the report says where it begins."""
    first = form % GOOD
    assert not trace_of(first).report.skipped
    trace = trace_of(f"{first}\n{form % LAST}")
    assert names(trace) == ["good"]
    assert [skip.byte for skip in trace.report.skipped] == [len(first) + 1]
    assert trace.report.events == 2


def test_kernels_of_merged_ranks_belong_to_the_call_before_them(
    trace_of: Callable[..., Trace],
) -> None:
    """Two ranks with the same ids: each kernel belongs to the call before it."""
    call = '{"ph":"X","cat":"cuda_runtime","name":"c%d","pid":%d,"tid":1,"ts":%d,"dur":1,%s}'
    kernel = (
        '{"ph":"X","cat":"kernel","name":"k%d","pid":%d,"tid":7,"ts":%d,"dur":1,%s}'
    )
    args = '"args":{"correlation":5}'
    events = [
        text % (rank, pid, ts, args)
        for rank in range(2)
        for text, pid, ts in (
            (call, 10 + rank, 100 * rank),
            (kernel, rank, 100 * rank + 9),
        )
    ]
    trace = trace_of("[" + ",".join(events) + "]")
    launches = {
        trace.name_of(row): trace.name_of(trace.launch[row]) for row in trace.gpu_rows
    }
    assert launches == {"k0": "c0", "k1": "c1"}


def test_cut_in_an_event(trace_of: Callable[..., Trace]) -> None:
    text = f'{{"traceEvents":[{GOOD},{LAST}'
    trace = trace_of(text[:-10])
    assert names(trace) == ["good"]
    assert not trace.report.complete
    assert len(trace.report.skipped) == 1


@pytest.mark.parametrize("end", ["", ",", ",\n", "]", '],"a":', '],"a":1'])
def test_cut_between_events(trace_of: Callable[..., Trace], end: str) -> None:
    trace = trace_of(f'{{"traceEvents":[{GOOD},{LAST}{end}')
    assert names(trace) == ["good", "last"]
    assert not trace.report.complete
    assert not trace.report.skipped


LIKE_ENDS = [  # events with brackets that look like that of the list
    '{"ph":"X","name":"k[3]","ts":9,"dur":5,"args":{"grid":[1,2],"s":["], \\"x\\": ]}"]}}',
    '{"ph":"X","pid":[{"a":{"b":[]}},1],"name":"v[2]]","args":{"c":9}}',
    '{"ph":"X","name":"q","ts":1,"dur":2,"args":{"Trace":"]","l":["a]","b"]}}',
]


@pytest.mark.parametrize("opening", ['{"traceEvents":[', "["])
@pytest.mark.parametrize("event", LIKE_ENDS)
def test_a_file_that_ends_within_any_byte_of_an_event_is_not_complete(
    write: Write, event: str, opening: str
) -> None:
    for length in range(1, len(event)):
        cut = f"{opening}{GOOD},{LAST},{event[:length]}"
        report = open_trace(str(write(cut)), cached=False).report
        assert (report.complete, report.events, report.unreadable) == (False, 3, 1), cut


@pytest.mark.parametrize("end", ['],"traceName":"t"}', ']\n,"displayTimeUnit":"ms"}'])
def test_a_last_event_without_its_end_is_no_end_of_the_file(
    write: Write, end: str
) -> None:
    unclosed = '{"ph":"X","name":"q","ts":1,"dur":2,"args":{"l":[1,2],"m":[3]'
    trace = open_trace(str(write(f'{{"traceEvents":[{GOOD},{unclosed}{end}')))
    assert trace.report.complete
    assert [skipped.reason for skipped in trace.report.skipped] == ["not closed"]
    assert len(trace.keys) == 1


def test_bytes_that_are_no_utf8_in_a_label_lose_no_event(write: Write) -> None:
    label = b'{"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"a\xff"}}'
    trace = open_trace(str(write(b"[%b,%b]" % (label, GOOD.encode()))))
    assert trace.report.unreadable == 0
    assert "a\ufffd" in trace.tracks[0].label


def test_ids_are_the_same_ones_beside_what_json_does_not_know(write: Write) -> None:
    ids = '"args":{"External id":0,"external id":7,"x":%s}'
    odd, plain = (OP.replace("}", f",{ids % x}}}") % ("a", 1, "") for x in ("NaN", "1"))
    trace = open_trace(str(write(f"[{odd},{plain}]")))
    assert trace.external_id.tolist() == [7, 7]
