"""What each page shows, one file per page: a page is a few functions of the state, and keeps
nothing.

For others: `Page`, `Pane` and `ListPage` (page.py). registry.py lists the pages.
"""
