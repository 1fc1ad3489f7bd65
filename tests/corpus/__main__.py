"""Makes the corpus and says where it is: `make corpus`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from tests.corpus.files import make_corpus

if __name__ == "__main__":
    folder = make_corpus()
    count = sum(path.is_file() for path in folder.rglob("*"))
    print(f"{count} traces in {folder}")
