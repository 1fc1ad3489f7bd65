"""What the user looks at, as one frozen State, and every change as a function to the next State.

For others: `State`, `Outcome` and the effects (state.py), `action` (action.py), and the functions
of moving.py, search.py, commands.py and reading.py. Nothing here knows a widget, a page or a color.
"""
