"""`whatif`: what a change would be worth; `path`: the critical path and what has time to spare."""

from __future__ import annotations

from argparse import Namespace

from fusetui.commands.answers import shown
from fusetui.commands.errors import CANNOT_TELL, CommandError
from fusetui.commands.loading import load


def run_whatif(args: Namespace) -> int:
    """Raises WrongChange. Exit code 3 where too little of the recording is understood."""
    from fusetui.analysis.replay.whatif import sweep, whatif
    from fusetui.report.whatif import sweep_text, whatif_text

    if bool(args.changes) == bool(args.sweep):
        raise CommandError(
            'fusetui whatif needs a change, such as "family:gemm x0.8", or --sweep; see fusetui '
            "whatif --help."
        )
    loaded = load(args.trace, args.captured_by)
    if args.sweep:
        curve = sweep(loaded.trace, args.sweep, args.step)
        code = shown(args, loaded, lambda: curve, lambda most: sweep_text(curve, most))
        return code if curve.points else CANNOT_TELL
    found = whatif(loaded.trace, args.changes, args.step)
    code = shown(
        args, loaded, lambda: found, lambda most: whatif_text(found, most, args.steps == "all")
    )
    return CANNOT_TELL if found.abstains else code


def run_path(args: Namespace) -> int:
    """The critical path of the whole trace."""
    from fusetui.analysis.replay.path import path
    from fusetui.report.whatif import path_text

    loaded = load(args.trace, args.captured_by)
    found = path(loaded.trace)
    return shown(args, loaded, lambda: found, lambda most: path_text(found, most))
