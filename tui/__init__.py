"""The Textual app: draws what fusetui.trace answers.

Rooms, each of which imports only those before it: `layout` (what stands where), `state` (what a
person looks at, and every change of it), `drawing` (styled lines), `pages` (what each page shows).
`registry.py` lists all pages and actions; `app.py` holds the state; `performing.py` carries out
what an action asks of the world.
"""
