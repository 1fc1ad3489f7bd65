"""The JSON Schema of each document that --json prints; made by docs/make_schemas.py."""

from __future__ import annotations

from importlib.resources import files


def names() -> list[str]:
    """The commands whose documents have a schema."""
    places = (place.name for place in files(__name__).iterdir())
    return sorted(
        name.removesuffix(".json") for name in places if name.endswith(".json")
    )


def text(command: str) -> str:
    """The schema as JSON. Raises FileNotFoundError."""
    return (files(__name__) / f"{command}.json").read_text(encoding="utf-8")
