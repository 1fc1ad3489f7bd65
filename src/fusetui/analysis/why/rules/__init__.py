"""The rules of `why`, by subject. A new rule is a function in one of these files and
one line in RULES (engine.py)."""
