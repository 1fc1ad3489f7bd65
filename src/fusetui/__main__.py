"""The console script, which is also what `python -m fusetui` runs.

It imports next to nothing before Ctrl+C has its plain effect: until a command can clean
up after itself, the signal ends the process without a traceback.
"""

import _signal  # type: ignore[import-not-found]  # what signal is made of, without its enums


def script() -> None:
    """Carries out the command line of this process, and exits."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from fusetui import cli

    cli.script()


if __name__ == "__main__":
    script()
