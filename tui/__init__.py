"""The Textual app: draws what fusetui.trace answers."""
