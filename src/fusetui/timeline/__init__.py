"""The content of each cell in a line of a lane, for the app and for web pages."""
