"""The Textual app: draws what fusetui.trace answers.

Rooms, each of which imports only those before it: `layout` (what is where), `state` (what the user
looks at, and every change of it), `drawing` (styled lines), `pages` (what each page shows).
`registry.py` lists all pages and actions; `app.py` holds the state; `performing.py` carries out
effects outside the state.
"""
