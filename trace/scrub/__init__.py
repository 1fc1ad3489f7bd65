"""Takes what is private out of a trace: environment variables, tokens, names of hosts and users,
command lines and folders. Figures stay as they are.

    report = scrub_file("trace.json.gz", "public.json.gz")
"""

from fusetui.trace.scrub.document import Document, Machine
from fusetui.trace.scrub.file import Scrubbed, scrub_file

__all__ = ["Document", "Machine", "Scrubbed", "scrub_file"]
