"""What each cell of a line of the timeline shows, found with a few binary searches."""
