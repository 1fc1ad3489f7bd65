"""The console script, which is also what `python -m fusetui` runs.

It imports next to nothing before Ctrl+C has its plain effect: until a command can clean up after
itself, the signal ends the process without a traceback.
"""

import signal


def script() -> None:
    """Carries out the command line of this process, and exits."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from fusetui import cli

    cli.script()


if __name__ == "__main__":
    script()
