"""The table of all commands with their arguments, and the parser that is made from
it."""
