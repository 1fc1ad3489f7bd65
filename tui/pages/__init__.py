"""What each page shows, a file for each: a page is a few functions of the state, and keeps nothing.

For others: `Page` and `Pane` (page.py), `ListPage` (lists.py). registry.py lists the pages.
"""
