"""Lets `python -m fusetui` do what the console script does."""

from fusetui.cli import script

if __name__ == "__main__":
    script()
