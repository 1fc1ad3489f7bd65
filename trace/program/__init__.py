"""Where work comes from in the program: modules, annotations, Python frames, phases; backward work
belongs where its forward op is."""

__all__ = [
    "around",
    "calls",
    "functions",
    "modules",
    "origin",
    "phases",
    "regions",
]
