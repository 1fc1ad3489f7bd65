"""Figures -> plain text for the command line. The app draws for itself."""
