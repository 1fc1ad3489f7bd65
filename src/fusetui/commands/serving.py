"""`serving`: the steps of an inference server, and the least time that they can take."""

from __future__ import annotations

from argparse import Namespace

from fusetui.commands.errors import CommandError
from fusetui.commands.loading import load
from fusetui.report.note import emit_json_of, emit_of
from fusetui.report.output import width


def run(args: Namespace) -> int:
    """Raises CommandError if the configuration of the model cannot be used."""
    from fusetui.analysis.serving.answer import serving
    from fusetui.analysis.serving.config import NoConfig, read_config
    from fusetui.commands.peaks import given_peaks, with_device
    from fusetui.report.serving import serving_json, serving_text

    given = given_peaks(args.peak)
    try:
        config = read_config(args.model_config) if args.model_config else None
    except NoConfig as error:
        raise CommandError(str(error)) from None
    loaded = load(args.trace, args.captured_by)
    trace = with_device(loaded.trace, args.device)
    found = serving(trace, config, given)
    if args.json:
        emit_json_of(trace, serving_json(found, trace))
    else:
        emit_of(trace, serving_text(found, width()))
    return loaded.code
