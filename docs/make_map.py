"""Generates docs/files.md (every module, by the first sentence of its docstring) and
the picture of docs/ARCHITECTURE.md (which room imports which), both from the code.

make reference
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import grimp

HERE = Path(__file__).parent
ROOT = HERE.parent
PACKAGE = ROOT / "src" / "fusetui"
FILES, ARCHITECTURE = HERE / "files.md", HERE / "ARCHITECTURE.md"
BEGIN, END = "<!-- rooms -->\n", "<!-- end -->"
ROOMS = {
    "api": (),
    "commands": (),
    "tui": ("pages", "drawing", "state", "layout"),
    "capture": (),
    "attach": (),
    "tables": (),
    "report": (),
    "analysis": (
        "diff",
        "ranks",
        "serving",
        "replay",
        "why",
        "graphs",
        "memory",
        "hang",
        "questions",
    ),
    "gpu": ("roofline", "kernel_names"),
    "timeline": (),
    "trace": (
        "scrub",
        "program",
        "cache",
        "nsys",
        "pftrace",
        "flight",
        "snapshot",
        "layout",
        "read",
        "model",
    ),
    "text": (),
    "kernels": (),
}
"""From the top down; of each, its own rooms."""
HEAD = """# The files

Every module, by the first sentence of its docstring. This page is generated from the code by
`make reference`; [ARCHITECTURE.md](ARCHITECTURE.md) explains how the rooms work together.
"""


def picture() -> str:
    """The rooms, and which of them each imports directly."""
    graph = grimp.build_graph("fusetui")
    lines = [_line(graph, name, list(ROOMS), "fusetui", 0) for name in ROOMS]
    for name, inner in ROOMS.items():
        if inner:
            lines += ["", f"{name}/"]
            lines += [_line(graph, one, inner, f"fusetui.{name}", 2) for one in inner]
    return "\n".join(["```", *lines, "```", ""])


def _line(
    graph: grimp.ImportGraph, name: str, others: Sequence[str], parent: str, indent: int
) -> str:
    found = [
        other
        for other in others
        if other != name and _directly(graph, f"{parent}.{name}", f"{parent}.{other}")
    ]
    return " " * indent + (f"{name:14}-> {' '.join(found)}" if found else name)


def _directly(graph: grimp.ImportGraph, importer: str, imported: str) -> bool:
    inside = {importer, *graph.find_descendants(importer)}
    there = {imported, *graph.find_descendants(imported)}
    return any(
        there & graph.find_modules_directly_imported_by(module) for module in inside
    )


def files() -> str:
    """The page of all modules."""
    return "\n".join([HEAD, *_sections(), ""])


def _sections() -> Iterator[str]:
    for name, inner in ROOMS.items():
        for room in (name, *(f"{name}/{one}" for one in inner)):
            folder = PACKAGE / room
            if not folder.is_dir():  # a room of one file
                yield f"## {room}\n\n{_said(folder.with_suffix('.py'))}\n"
                continue
            yield f"## {room}\n\n{_said(folder / '__init__.py')}\n"
            yield "| file | what |\n|---|---|"
            own = folder if inner and room == name else None
            paths = sorted(folder.glob("*.py") if own else folder.rglob("*.py"))
            for path in paths:
                if path.name != "__init__.py" and not (own and path.stem in inner):
                    yield f"| `{path.relative_to(folder).as_posix()}` | {_said(path)} |"
            yield ""


def _said(path: Path) -> str:
    """The first sentence of a module's docstring, in one line of a Markdown table."""
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    text = " ".join(said.split("\n\n")[0].split())
    first, stop, _ = text.partition(". ")
    return (first + "." if stop else text).replace("|", "\\|")


def architecture() -> str:
    """The page of the architecture with the picture of today's imports."""
    before, _, rest = ARCHITECTURE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{picture()}{END}{after}"


if __name__ == "__main__":
    FILES.write_text(files(), encoding="utf-8")
    ARCHITECTURE.write_text(architecture(), encoding="utf-8")
