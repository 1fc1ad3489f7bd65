"""The content of each page, one file per page, as functions of the state. registry.py
lists the pages."""
