"""Answers as tables of columns, which can be filtered, sorted, written to files, and
converted to dataframes."""
