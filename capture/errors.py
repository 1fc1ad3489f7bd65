"""The error that capture reports to the user."""

from __future__ import annotations

from fusetui.text.errors import Error


class CaptureError(Error):
    """One plain sentence for the user: what is wrong and what to do."""
