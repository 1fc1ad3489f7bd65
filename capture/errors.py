"""What capture tells a user when it cannot go on."""


class CaptureError(Exception):
    """One plain sentence for the user: what is wrong and what to do."""
