"""The command line: what runs for which command. How it is answered is in `commands`, imported
when a command runs, so that `fusetui --help` costs next to nothing.

The exit codes are in `arguments.EXIT_CODES`.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable

from fusetui.arguments import command_parsers, parse
from fusetui.commands.errors import DONE, guarded


def _capture(args: Namespace) -> int:
    from fusetui.capture.options import Options, Recording
    from fusetui.commands.measure import capture, seconds_for

    shapes = args.shapes is not False
    sweep = tuple(args.sweep or ())
    options = Options(
        variants=tuple(args.variant or ()),
        device=args.device,
        dtype=args.dtype,
        shapes=args.of_workload,
        backward=args.backward,
        mode=args.mode,
        expect=tuple(args.expect or ()),
        seconds=seconds_for(args.seconds, sweep),
        recording=Recording(args.steps, args.stack, shapes, args.memory, args.scrub),
    )
    return capture(args.workload, options, args.out, sweep, args.open)


def _open(args: Namespace) -> int:
    from fusetui.commands.browse import browse

    names = [args.trace] if args.other is None else [args.trace, args.other]
    return browse(names, args.ascii, args.mouse is not False)


def _summary(args: Namespace) -> int:
    from fusetui.commands.figures import summary

    return summary(args.trace, args.json)


def _kernels(args: Namespace) -> int:
    from fusetui.commands.figures import kernels

    return kernels(args.trace, args.json, args.top)


def _ops(args: Namespace) -> int:
    from fusetui.commands.figures import ops

    return ops(args.trace, args.json, args.top)


def _diff(args: Namespace) -> int:
    from fusetui.commands.compare import compare

    return compare(args.a, args.b, args.json, args.markdown, args.fail_over, args.baseline)


def _why(args: Namespace) -> int:
    from fusetui.commands.why import Form, selection, why

    return why(args.trace, args.other, selection(args), Form(args.json, args.markdown))


def _gaps(args: Namespace) -> int:
    from fusetui.commands.why import gaps, selection

    return gaps(args.trace, selection(args), args.json)


def _scrub(args: Namespace) -> int:
    from fusetui.commands.scrub import scrub

    return scrub(args.trace, args.out)


def _decode(args: Namespace) -> int:
    from fusetui.commands.explain import explain

    return explain(args.names, args.json)


def _check(args: Namespace) -> int:
    from fusetui.commands.guess import check

    return check(args.trace, args.expect, args.json)


def _samples(args: Namespace) -> int:
    from fusetui.commands.browse import list_samples

    return list_samples(args.json)


RUNS: dict[str, Callable[[Namespace], int]] = {
    "capture": _capture,
    "open": _open,
    "summary": _summary,
    "kernels": _kernels,
    "ops": _ops,
    "diff": _diff,
    "why": _why,
    "gaps": _gaps,
    "scrub": _scrub,
    "decode": _decode,
    "check": _check,
    "samples": _samples,
}


def run(arguments: list[str]) -> int:
    """The exit code of one command line."""
    args = parse(arguments)
    if args.command is None:
        command_parsers()[""].print_help()
        return DONE
    if getattr(args, "no_cache", False):
        os.environ["FUSETUI_CACHE"] = "off"
    return RUNS[args.command](args)


def main() -> int:
    """The exit code of this process's command line."""
    return guarded(lambda: run(sys.argv[1:]))


def script() -> None:
    """The console script.

    It leaves at once: the system takes the memory of a large trace back faster than Python frees it
    object by object. Torch has to tidy up.
    """
    code = main()
    if "torch" in sys.modules:
        sys.exit(code)
    os._exit(code)
