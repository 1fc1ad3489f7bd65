"""From layout to styled lines. A picture makes lines of texts and tokens; the canvas paints those
that changed.

For others: `Picture`, `text`, `ruled` and `Rows` (picture.py), `TimelinePicture` (timeline.py),
`Canvas` (canvas.py), schemes and glyphs (schemes.py). Only segments.py makes what Textual draws.
"""
