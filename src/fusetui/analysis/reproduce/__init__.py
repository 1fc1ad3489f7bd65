"""Calls of ops in a trace, complete enough to reproduce them."""
