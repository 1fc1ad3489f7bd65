"""Formats text for users: figures with units, text cut to a width, tables, and escaped
terminal characters."""
