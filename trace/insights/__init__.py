"""Why a device was idle, and what its time went to: figures that add up, and claims with their
evidence."""

__all__ = [
    "account",
    "breakdown_text",
    "causes",
    "facts",
    "gaps",
    "longest",
    "markdown",
    "model",
    "selection",
    "stretches",
    "telling",
    "versus",
    "why",
    "words",
]
