"""The view state, as one frozen State, and its transitions, as functions to the next
State. Nothing here knows a widget, a page or a color."""
