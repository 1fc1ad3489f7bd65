"""Pages for a browser that need nothing else and load nothing."""
