"""The layout of lanes, windows, movements and trees as pure functions, without style or
text."""
