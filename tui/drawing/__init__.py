"""From layout to styled lines: a picture turns text and tokens into lines, and the
canvas paints those that changed. Only segments.py makes what Textual draws."""
