from fusetui.api import *  # noqa: F403

__version__: str

class Error(Exception): ...
