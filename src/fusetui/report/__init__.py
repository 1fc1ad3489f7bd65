"""Turns figures into plain text for the command line. The app does its own drawing."""
