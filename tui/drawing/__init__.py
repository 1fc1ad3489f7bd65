"""From layout to styled lines. A picture makes lines; the canvas paints those that changed.

For others: `Picture`, `text` and `ruled` (picture.py), `TimelinePicture` (timeline.py), `Rows`
(rows.py), `Canvas` (canvas.py), the palette, the glyphs. Only segments.py makes what Textual draws.
"""
