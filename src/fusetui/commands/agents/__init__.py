"""What `fusetui mcp` serves: tools whose answers fit a budget, from allowed files
only."""
