"""Answers as tables of columns: filtered, sorted, written to files, and handed to
dataframes."""
