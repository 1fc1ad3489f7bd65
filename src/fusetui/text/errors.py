"""The root of all errors whose message is one plain sentence for the user."""

from __future__ import annotations


class Error(Exception):
    """One plain sentence: what is wrong, and what to do."""
