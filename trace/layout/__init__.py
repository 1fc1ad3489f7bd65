"""From slices in file order to rows on tracks: nesting, links to launches, steps, devices."""

__all__ = [
    "devices",
    "enclosing",
    "links",
    "nesting",
    "reach",
    "step_spans",
    "steps",
    "tracks",
]
