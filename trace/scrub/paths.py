"""Paths in a text: folders become placeholders; file names and paths in site-packages are kept.

`/home/ada/my work/train.py(12): main` -> `dir1/train.py(12): main`
`/opt/venv/lib/python3.12/site-packages/torch/nn/init.py` -> `dir2/site-packages/torch/nn/init.py`
"""

from __future__ import annotations

import re

from fusetui.trace.scrub.placeholders import FOLDER, Placeholders, is_placeholder
from fusetui.trace.scrub.secrets import words_of

PACKAGES = words_of("public_packages.txt")
"""Publicly available packages, of whose files the profiler records what follows site-packages:
`torch/nn/modules/linear.py`. Names that users also give to folders of their own (datasets, docker)
are left out."""

_STOP = r"\s/\\\"'`;:,<>|*?(){}\[\]\x00-\x1f"  # where a part of a path ends
_PART = rf"[^{_STOP}]++"
_BRACKETED = r"[(\[{](?!\d++[)\]}])[^\s/\\()\[\]{}\"']{0,80}+[)\]}]"
_FOLDER = rf"(?:[^{_STOP}]++|{_BRACKETED})++"
_SEP = r"[/\\]++"
_CODE = "py pyx pyi pyc pyd so"
_ENDINGS = f"""{_CODE} c cc cpp cxx cu cuh h hh hpp hip inl inc ptx cubin fatbin hsaco sass ttir
    ttgir llir ll mlir s asm o a dll dylib exe json jsonl gz zst zip tar tgz bz2 xz whl egg jar
    txt log md rst csv tsv yaml yml toml cfg ini conf xml html js ts rs go java rb sh bash bat ps1
    sql ipynb pt pth ckpt bin safetensors gguf onnx pkl pickle npy npz h5 hdf5 parquet arrow
    feather db sqlite proto pb lock trace nsys ncu qdrep sqlite3 png jpg jpeg svg gif pdf
    dat data out err tmp"""
_ENDED = rf"\.(?:{'|'.join(_ENDINGS.split())})(?:\.\d+)*"
_NO_FILE = "".join(
    rf"(?<!\.(?:{'|'.join(ending for ending in _ENDINGS.split() if len(ending) == length)}))"
    for length in sorted({len(ending) for ending in _ENDINGS.split()})
)
FILE = re.compile(rf"[^/\\.][^/\\]*?{_ENDED}", re.IGNORECASE)
CODE = re.compile(rf".*\.(?:{'|'.join(_CODE.split())})", re.IGNORECASE | re.DOTALL)
HOMES = re.compile(r"(?:^|/)(?:home|users)$", re.IGNORECASE)
HOME_INSIDE = re.compile(r"(?:^|/)(?:home|users)/.", re.IGNORECASE)
LIBRARY = re.compile(r"(?:^|(?P<before>.*)/)(?P<kept>(?:site|dist)-packages(?:/.*)?)", re.DOTALL)

_ROOTS = (
    "home|users|root|tmp|mnt|data|opt|usr|var|srv|etc|scratch|workspace|private|volumes|nfs|lustre"
)
PATH = re.compile(
    rf"""
    (?P<absolute>
        (?: (?:(?<![\w.)>\]}}%~$/\\])|(?<=-[ILB])) (?!(?<=[A-Za-z]:)//(?!/)) /++(?!\w{{1,20}}+>)
          | (?<=[)>\]}}]) /++(?=(?:{_ROOTS})/)
          | (?<![A-Za-z0-9])[A-Za-z]:{_SEP}
          | (?<![\w\\])\\{{2,8}}+(?=\w)
          | (?<![\w~])~[\w.-]{{0,64}}+{_SEP}
          | (?<![\w.])\.{{1,2}}+{_SEP}
          | \$(?:\w{{1,64}}+|\{{\w{{1,64}}+\}}){_SEP}
          | %\w{{1,64}}+%{_SEP}
        )
        (?: {_FOLDER}{_SEP}
          | {_FOLDER}{_NO_FILE}(?:\x20{{1,4}}+(?!-){_FOLDER}){{1,5}}+{_SEP}
        )*+
        (?:{_PART})?
    )
    | (?P<relative>
        (?<![^{_STOP}=&!])(?<![)>\]}}/\\])(?!-[ILB]/)
        [^{_STOP}=&!]++ (?:{_SEP}{_PART})++ (?:{_SEP})?+
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)

ENCODED = re.compile(
    r"(?<![^\s\"'`<>()=;,])[^\s\"'`<>()=;,]{0,2000}?%2F[^\s\"'`<>()=;,]++", re.IGNORECASE
)
"""A path as it appears in a URL: home%2Fada."""

ROOTED = re.compile(r"(?:/|~/|[A-Za-z]:[/\\])(?=.*[^\s])[^:;,\"'<>|*?()\x00-\x1f]++")
FILE_BEFORE_BLANK = re.compile(rf"{_ENDED}\s", re.IGNORECASE)
MOST_BLANKS = 4  # in the last part of a path; with more it is a sentence


def scrub_paths(text: str, given: Placeholders) -> str:
    """A text whose paths contain no folder names."""
    if "%2" in text:
        text = ENCODED.sub(lambda found: given.give(FOLDER, found[0]), text)
    if "/" not in text and "\\" not in text:
        return text
    if _is_one_path(text):
        return scrub_path(text, given)
    return PATH.sub(lambda found: _shorten(found, given), text)


def scrub_path(path: str, given: Placeholders) -> str:
    """Treats the whole text as one path, including spaces; the last part may be a folder."""
    plain = path.replace("\\", "/")
    return _public(plain, given) if plain.strip("/") else path


def _is_one_path(text: str) -> bool:
    """Whether a text with spaces is a single path: `/home/ada/my work`."""
    last = text.replace("\\", "/").rpartition("/")[2]
    if " " not in text or last.count(" ") > MOST_BLANKS or " /" in text:
        return False
    return bool(ROOTED.fullmatch(text)) and not FILE_BEFORE_BLANK.search(text)


def _shorten(found: re.Match[str], given: Placeholders) -> str:
    path = found[0]
    body = path.rstrip(".") or path
    plain = body.replace("\\", "/")
    folder, _, name = plain.rpartition("/")
    if found.lastgroup == "relative":
        if not FILE.fullmatch(name) and not HOME_INSIDE.search(plain):
            return path  # words divided by a slash may be anything: 0/1, tokens/s, train/loss
        if plain.split("/", 1)[0] in PACKAGES and CODE.fullmatch(name):
            return path
    elif not folder.strip("/.") and (len(name) < 2 or FILE.fullmatch(name)):
        return path
    return _public(plain, given) + path[len(body) :]


def _public(plain: str, given: Placeholders) -> str:
    """A path with a placeholder for its folder, or for all of it if it ends in a folder."""
    folder, _, name = plain.rpartition("/")
    if not FILE.fullmatch(name) or HOMES.search(folder):
        folder, name = plain.rstrip("/"), ""
    library = LIBRARY.fullmatch(folder)
    before, kept = (library["before"], library["kept"]) if library else (folder, "")
    if before and not is_placeholder(before.strip("/")):
        before = given.give(FOLDER, before)
    return "/".join(filter(None, (before, kept, name)))
