"""The pages of the app, each in a file of its own; `PAGES` in registry.py lists them."""
