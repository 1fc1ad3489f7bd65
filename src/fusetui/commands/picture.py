"""`picture`: a page of the app as an SVG, a PNG or an HTML document."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.selection import asked
from fusetui.commands.cut import Window
from fusetui.commands.errors import CommandError
from fusetui.commands.loading import load
from fusetui.commands.why import selection_of
from fusetui.report.output import emit
from fusetui.text.printable import printable
from fusetui.trace import Trace
from fusetui.trace.new_file import check_new, new_file

ENDINGS = (".svg", ".png", ".html")
AS_TRACE = "fusetui cut writes it as a trace, of which any page can be drawn"
TIMELINE, DIFF = "timeline", "diff"
LETTER = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{}</svg>'


def run_picture(args: Namespace) -> int:
    """Raises CommandError, NoPage or NotThere; OUT is not written then."""
    form = Path(args.out).suffix.lower()
    if form not in ENDINGS:
        raise CommandError(f"{args.out} must end in .svg, .png or .html.")
    check_new(args.out)
    if form == ".png":
        _rasterizer()
    names = [name for name in (args.trace, args.other) if name is not None]
    page = args.page or (DIFF if len(names) > 1 else TIMELINE)
    loaded = [load(name, args.captured_by) for name in names]
    traces = [one.trace for one in loaded]
    window = _window(traces[0], args)
    if window and page != TIMELINE:
        raise CommandError(f"A part is drawn by --page timeline alone: {AS_TRACE}.")
    svg = _drawn(traces, page, window, args)
    with new_file(args.out) as place:
        place.write_bytes(_formed(svg, form, args))
    emit(f"{printable(args.out)}: the page {page}.")
    return max(one.code for one in loaded)


def _window(trace: Trace, args: Namespace) -> Window | None:
    is_whole = args.step is None and args.begin is None and args.end is None
    return None if is_whole else asked(Accounts(trace), selection_of(args)).window


def _drawn(traces: list[Trace], which: str, window: Window | None, args: Namespace) -> str:
    from fusetui.tui.layout.view import short_label
    from fusetui.tui.pictures import drawn, shown
    from fusetui.tui.state.state import Size

    labels = [short_label(trace.report.file) for trace in traces]
    state = shown(traces, labels, which, Size(*args.size), window)
    title = f"{' and '.join(labels)}: {which}"
    return drawn(state, args.light is not False, title, pixels=args.pixels)


def _formed(svg: str, form: str, args: Namespace) -> bytes:
    if form == ".png":
        png: bytes = _rasterizer()(svg)
        return png
    if form == ".html":
        from fusetui.commands.web.document import document

        style = "body{margin:0}svg{max-width:100%;height:auto}"
        svg = document(f"fusetui: {args.trace}", svg, style, light=args.light is not False)
    return svg.encode()


def _rasterizer() -> Callable[[str], bytes]:
    """Makes a PNG of an SVG. Raises MissingPackage, and CommandError where there is no font: all
    texts would be missing."""
    from fusetui.tables.frames import needed
    from fusetui.tui.drawing.svg import FAMILY

    drawn = needed("resvg_py", "A PNG", "picture").svg_to_bytes

    def png(svg: str) -> bytes:
        return bytes(drawn(svg_string=svg))

    letter = f'<text y="15" font-family="{FAMILY}">M</text>'
    if png(LETTER.format(letter)) == png(LETTER.format("")):
        raise CommandError("No font is installed, so a PNG would have no text: write an SVG.")
    return png
