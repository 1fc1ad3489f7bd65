"""What a lane shows in each cell of a line, for the app and for web pages."""
