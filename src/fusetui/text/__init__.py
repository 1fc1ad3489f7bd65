"""Text for users: figures with units, text cut to a width, tables, and characters that
no terminal interprets."""
