"""What the user looks at, as one frozen State, and every change as a function to the
next State. Nothing here knows a widget, a page or a color."""
