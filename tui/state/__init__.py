"""What the user looks at, as one frozen State, and every change as a function to the next State.

For others: `State` and `Outcome` (state.py), `action` (action.py), the effects (effects.py), and
the functions of moving.py, search.py, marks.py, commands.py and reading.py. Nothing here knows a
widget, a page or a color.
"""
