"""The error that capture reports to the user."""


class CaptureError(Exception):
    """One plain sentence for the user: what is wrong and what to do."""
