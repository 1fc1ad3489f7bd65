"""`launches`: what launching GPU work cost the CPU, and how long the launch queue was."""

from __future__ import annotations

from argparse import Namespace

from fusetui.analysis.questions.launches import length_of, queues, replays, thread_launches
from fusetui.commands.loading import load
from fusetui.report.launches import launches_json, launches_text
from fusetui.report.note import emit_json_of, emit_of
from fusetui.report.output import width


def run(args: Namespace) -> int:
    loaded = load(args.trace, args.captured_by)
    trace = loaded.trace
    threads, graphs = thread_launches(trace), replays(trace)
    lengths = [length_of(queue) for queue in queues(trace)]
    if args.json:
        emit_json_of(trace, launches_json(trace, threads, graphs, lengths))
    else:
        emit_of(trace, launches_text(trace, threads, graphs, lengths, width()))
    return loaded.code
