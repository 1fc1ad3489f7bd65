"""What each command of the command line does. Every one returns its exit code."""
