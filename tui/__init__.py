"""The Textual app: draws what fusetui.trace answers. `registry.py` lists all pages and
actions; `app.py` holds the state; `performing.py` carries out effects outside the
state."""
