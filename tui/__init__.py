"""The Textual app, which draws the results of fusetui.trace and the analyses.
`registry.py` lists all pages and actions; `app.py` holds the state; `performing.py`
carries out effects outside the state."""
