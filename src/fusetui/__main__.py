"""Lets `python -m fusetui` do what the console script does."""

from fusetui.cli import main

if __name__ == "__main__":
    main()
