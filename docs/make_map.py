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
FILES = HERE / "files.md"
ARCHITECTURE = HERE / "ARCHITECTURE.md"
BEGIN = "<!-- rooms -->\n"
END = "<!-- end -->"
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
        "reproduce",
        "memory",
        "hang",
        "compiled",
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
        "compile_log",
        "snapshot",
        "layout",
        "read",
        "model",
    ),
    "text": (),
    "kernels": (),
}
"""The packages from the top layer down, with the packages inside each."""
HEAD = """# The files

This page lists every module with the first sentence of its docstring. It is generated from the code by
`make reference`; [ARCHITECTURE.md](ARCHITECTURE.md) explains how the packages work together.
"""


def picture() -> str:
    """A line for each package with those that it imports directly: first the packages
    of fusetui, then those inside each of them."""
    graph = grimp.build_graph("fusetui")
    lines = ["```"]
    for name in ROOMS:
        lines.append(_imports_line(graph, "fusetui", name, list(ROOMS)))

    for name, inner in ROOMS.items():
        if not inner:
            continue
        lines += ["", f"{name}/"]
        for inner_name in inner:
            line = _imports_line(graph, f"fusetui.{name}", inner_name, inner)
            lines.append(f"  {line}")

    return "\n".join([*lines, "```", ""])


def _imports_line(
    graph: grimp.ImportGraph, parent: str, name: str, siblings: Sequence[str]
) -> str:
    """`tables        -> report analysis`: a package and which of its siblings it
    imports; the name alone if none."""
    importer = f"{parent}.{name}"
    imported = [
        sibling
        for sibling in siblings
        if sibling != name and _imports(graph, importer, f"{parent}.{sibling}")
    ]
    return f"{name:14}-> {' '.join(imported)}" if imported else name


def _imports(graph: grimp.ImportGraph, importer: str, imported: str) -> bool:
    """Whether a module of one package imports a module of the other directly."""
    targets = {imported, *graph.find_descendants(imported)}
    for module in (importer, *graph.find_descendants(importer)):
        if targets & graph.find_modules_directly_imported_by(module):
            return True
    return False


def files() -> str:
    """The page of all modules."""
    return "\n".join([HEAD, *_sections(), ""])


def _sections() -> Iterator[str]:
    """A section for each package, then for those inside it."""
    for name, inner in ROOMS.items():
        yield from _section(name, without=inner)
        for inner_name in inner:
            yield from _section(f"{name}/{inner_name}", without=())


def _section(package: str, without: Sequence[str]) -> Iterator[str]:
    """The modules of a package with those of all folders inside it; if it has packages
    with sections of their own, `without`, only the modules directly in it."""
    folder = PACKAGE / package
    if not folder.is_dir():  # a package of one file
        yield f"## {package}\n\n{_first_sentence(folder.with_suffix('.py'))}\n"
        return

    yield f"## {package}\n\n{_first_sentence(folder / '__init__.py')}\n"
    yield "| file | what |\n|---|---|"

    for path in sorted(folder.glob("*.py") if without else folder.rglob("*.py")):
        if path.name == "__init__.py" or path.stem in without:
            continue
        name = path.relative_to(folder).as_posix()
        yield f"| `{name}` | {_first_sentence(path)} |"

    yield ""


def _first_sentence(path: Path) -> str:
    """That of a module's docstring, in one line and fit for a table of Markdown."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first_paragraph = " ".join(docstring.split("\n\n")[0].split())
    first, stop, _ = first_paragraph.partition(". ")
    sentence = f"{first}." if stop else first_paragraph
    return sentence.replace("|", "\\|")


def architecture() -> str:
    """docs/ARCHITECTURE.md with the picture of today's imports."""
    before, _, rest = ARCHITECTURE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{picture()}{END}{after}"


if __name__ == "__main__":
    FILES.write_text(files(), encoding="utf-8")
    ARCHITECTURE.write_text(architecture(), encoding="utf-8")
