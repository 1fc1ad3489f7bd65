"""From layout to styled lines: a picture makes lines of texts and tokens, the canvas
paints those that changed. Only segments.py makes what Textual draws."""
