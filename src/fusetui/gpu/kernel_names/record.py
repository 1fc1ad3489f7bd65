"""What the name of a GPU kernel says: the record that every decoder returns, and how it
is built.

Parts say which characters mean what. Names are untrusted: only plain characters leave
this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from string import ascii_lowercase, digits
from typing import Any, Final

import msgspec

from fusetui.text.patterns import compiled, lazy_pattern
from fusetui.text.printable import printable

from .vocabulary import MMA_SHAPES, from_capability, from_word

Part = tuple[int, int, str]
"""(start, end, meaning): the characters name[start:end] and what they mean, in plain
words."""

Meaning = Callable[[str], str | None]
Meanings = Mapping[str, str | Callable[[str], str]]

MAX_SHORT: Final = 48

_UNSAFE = lazy_pattern(r"[^ -Z\\^-~]")
_BRACKETS: Final = {"[": "(", "]": ")"}  # which terminal markup uses

# Names of groups of patterns, by what is made of their texts; see fields_of.
_NUMBER_FIELDS: Final = frozenset(
    {"tile_m", "tile_n", "tile_k", "stages", "align", "head_dim"}
)
_TEXT_FIELDS: Final = frozenset({"cluster", "layout"})
_TARGET_FIELDS: Final = {"cc": from_capability, "arch": from_word}
_EPILOGUES: Final = frozenset(
    {"bias", "relu", "gelu", "drelu", "dgelu", "aux", "scalemax", "bgrada", "bgradb"}
)
_MEANINGS: Final = {
    "cc": "built for compute capability {}",
    "tile_m": "output tile of one block: {} rows",
    "tile_n": "output tile of one block: {} columns",
    "tile_k": "each step takes {} of K",
    "stages": "pipeline stages in flight: {}",
    "cluster": "cluster of {} blocks",
    "align": "operands are aligned to {} elements",
}


class DecodedName(
    msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True
):
    """The output of `decode --json` for any name: the fields that the name determines;
    the others are None.

    Tiles and `align` are in elements. `layout` holds the BLAS letters of A and B (t:
    read transposed) or the tensor layout of a convolution. docs/kernel-names.md has
    the vocabulary of each field."""

    name: str
    short: str
    family: str | None  # None: of no known family
    op: str | None = None
    arch: str | None = None
    arch_name: str | None = None
    dtype_a: str | None = None
    dtype_b: str | None = None
    dtype_acc: str | None = None
    dtype_out: str | None = None
    dtype: str | None = None
    math: str | None = None
    tile_m: int | None = None
    tile_n: int | None = None
    tile_k: int | None = None
    stages: int | str | None = None
    layout: str | None = None
    mma: str | None = None
    mma_mn: str | None = None
    align: int | None = None
    cluster: str | None = None
    split_k: bool | int | None = None
    stream_k: bool | None = None
    role: str | None = None
    epilogue: str | None = None
    head_dim: int | None = None
    causal: bool | None = None  # the flag of a full causal mask
    local: bool | None = None  # limited to a window, causal or not
    functor: str | None = None
    vec: int | None = None
    fused_ops: tuple[str, ...] | None = None
    kernel_category: str | None = None
    collective: str | None = None
    redop: str | None = None
    algo: str | None = None
    proto: str | None = None
    direction: str | None = None
    parts: tuple[Part, ...]
    pass_: str | None = msgspec.field(name="pass", default=None)


class KernelName(DecodedName, frozen=True, kw_only=True, gc=False):
    """The fields of a name from a known library."""

    family: str


def build(
    name: str, family: str, short: str, parts: Iterable[Part] = (), **fields: Any
) -> KernelName:
    """A record whose parts are sorted and do not overlap, and whose short text is safe.
    Of two parts that overlap, the one that starts first is kept."""
    kept: list[Part] = []
    last_end = 0
    for part in sorted(parts):
        start, end, _ = part
        if last_end <= start < end:
            kept.append(part)
            last_end = end
    return KernelName(
        name=name, short=safe(short), family=family, parts=tuple(kept), **fields
    )


def fields_of(match: re.Match[str], types: Meaning | None = None) -> dict[str, Any]:
    """The fields of KernelName that groups of a pattern are named after.

    Numbers become int. `types` maps the words of the groups `dtype_...` to our names of
    element types. The digits of a tensor-core instruction (`mma`) become its shape. A
    compute capability `cc` or a generation `arch` gives the fields `arch` and
    `arch_name`."""
    fields: dict[str, Any] = {}
    for group, text in match.groupdict(default="").items():
        if group in _NUMBER_FIELDS and text:
            fields[group] = int(text)
        elif group in _TEXT_FIELDS:
            fields[group] = text or None
        elif group == "mma":
            fields[group] = text if "x" in text else MMA_SHAPES.get(text)
        elif group in _TARGET_FIELDS:
            fields |= _TARGET_FIELDS[group](text)
        elif types and group.startswith("dtype_"):
            fields[group] = types(text)
    return fields


def epilogue_of(rest: str) -> str | None:
    """The words of a text that name what can be fused into the store, such as
    `bias_relu` of `_lower_bias_relu_v1`; None if it has none. The words of the text are
    between underscores."""
    fused = [word for word in rest.split("_") if word in _EPILOGUES]
    return "_".join(fused) or None


def explain(
    match: re.Match[str], meanings: Meanings, words: Meaning | None = None
) -> list[Part]:
    """The parts of a match: one for each group that matched characters and has a
    meaning, in `meanings` or in those of all families. A meaning is a function of the
    group's text, or a text with `{}` in its place. For the groups `mid` and `rest`, there
    is also a part for each word between underscores that `words` has a meaning for.

    >>> explain(re.compile("(?P<tile_m>[0-9]+)x").match("64x"), {"tile_m": "tile of {} rows"})
    [(0, 2, 'tile of 64 rows')]
    """
    parts: list[Part] = []
    name = match.string
    for group, index in match.re.groupindex.items():
        start, end = match.regs[index]
        meaning = meanings.get(group, _MEANINGS.get(group))
        if meaning and end > start:
            text = name[start:end]
            told = meaning.format(text) if isinstance(meaning, str) else meaning(text)
            parts.append((start, end, told))
        if words and group in ("mid", "rest"):
            parts += _word_parts(name, start, end, words)
    return parts


def _word_parts(name: str, start: int, end: int, words: Meaning) -> list[Part]:
    """A part for each word between underscores in name[start:end] that has a
    meaning."""
    parts = []
    for word_start, word_end, word in tokens(name, start, end):
        meaning = words(word)
        if meaning is not None:
            parts.append((word_start, word_end, meaning))
    return parts


def op_by(patterns: Mapping[str, str], text: str) -> str | None:
    """The first key whose pattern matches anywhere in the text; None if none does."""
    for op, pattern in patterns.items():
        if compiled(pattern).search(text):
            return op
    return None


def tokens(name: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """The words between underscores in name[start:end], with their positions."""
    for word in name[start:end].split("_"):
        if word:
            yield start, start + len(word), word
        start += len(word) + 1


def escaped(char: str) -> str:
    """One character as printable ASCII: brackets become parentheses, any other is
    written as an escape sequence."""
    if char in _BRACKETS:
        return _BRACKETS[char]
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def cut(text: str, mark: str) -> str:
    """At most MAX_SHORT characters; `mark` ends a text that was cut."""
    if len(text) <= MAX_SHORT:
        return text
    return text[: MAX_SHORT - len(mark)].rstrip() + mark


def safe(text: str) -> str:
    """A text of any origin as a short one: printable ASCII without square brackets.

    >>> safe("a\\x1b[31mb")
    'a\\\\x1b(31mb'
    """
    head = text[: 2 * MAX_SHORT]
    if not (head.isascii() and head.isprintable()) or "[" in head or "]" in head:
        head = _UNSAFE.sub(lambda match: escaped(match[0]), head)
    return cut(head, "...")


def spaced(*words: str | int | None) -> str:
    """The words in one text, with a blank between them; None, 0 and "" are left out."""
    return " ".join([str(word) for word in words if word])


def gemm_label(op: str, fields: Mapping[str, Any], *more: str | None) -> str:
    """One line for a matrix multiplication or a convolution: type, tile, layout,
    target.

    >>> gemm_label("gemm", {"dtype_a": "bf16", "tile_m": 128, "tile_n": 64, "layout": "tn"})
    'gemm bf16 128x64 tn'
    """
    get = fields.get
    math = get("math")
    stages = get("stages")
    return spaced(
        op,
        _types(get("dtype_a"), get("dtype_b"), get("dtype_acc"), get("dtype_out")),
        f"({math})" if math else None,
        tile_words(get("tile_m"), get("tile_n"), get("tile_k")),
        get("layout"),
        get("arch") or (get("arch_name") or "").lower(),
        get("epilogue"),
        f"s{stages}" if stages else None,
        *more,
    )


def _types(
    a: str | None, b: str | None, acc: str | None, out: str | None
) -> str | None:
    """The types of a product as dtype_words writes them. Where that of A is not known,
    `->bf16` for the result if it differs from the sums, else the type of the sums.

    >>> _types(None, None, "fp32", "bf16"), _types(None, None, "fp32", None)
    ('->bf16', 'fp32')
    """
    if a is None and out is not None and out != acc:
        return f"->{out}"
    return dtype_words(a or acc, b, out)


def dtype_words(a: str | None, b: str | None, out: str | None) -> str | None:
    """`bf16`, `bf16*fp8` for different operands, `bf16->fp32` if the result has another
    type. None if neither an operand nor the result is known."""
    if a is None:
        return out
    operands = a
    if b is not None and b != a:
        operands = f"{a}*{b}"
    if out is None or out == a:
        return operands
    return f"{operands}->{out}"


def tile_words(*sizes: int | None) -> str | None:
    """`128x64x32` or `128x64`; unknown sizes are left out, None if there is none."""
    return "x".join([str(size) for size in sizes if size]) or None


UNDERLINE = ("└", "─", "┘")
# What marks each part: one character each, so that the shortest part can be marked.
SIGNS = digits[1:] + ascii_lowercase


class Annotated(msgspec.Struct, frozen=True):
    """Lines of the name, at least one, each with the line of marks below it, and the
    legend."""

    lines: tuple[tuple[str, str], ...]
    legend: tuple[str, ...]


def annotate(
    name: str, parts: Sequence[Part], width: int, ends: Sequence[str]
) -> Annotated:
    """Wraps a name at `width` characters and underlines its parts; `ends`: the left
    end, the middle and the right end of an underline, one character each."""
    signs = _signs(len(parts))
    marks = [" "] * len(name)
    legend = []
    for sign, (start, end, meaning) in zip(signs, parts, strict=True):
        marks[start:end] = _mark(sign, end - start, ends)
        legend.append(f"{sign} {meaning}")
    texts: Sequence[str] = name
    if not name.isprintable():
        # an escaped character is wider: the marks stay below what they mark
        texts = [printable(character) for character in name]
        marks = _widened(marks, texts)
    shown = "".join(texts)
    underlines = "".join(marks)
    lines = []
    for start in range(0, max(1, len(shown)), width):  # a name may be empty
        end = start + width
        lines.append((shown[start:end], underlines[start:end].rstrip()))
    return Annotated(lines=tuple(lines), legend=tuple(legend))


def _widened(marks: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Each mark, a character, as often as its text has characters."""
    return [mark * len(text) for mark, text in zip(marks, texts, strict=True)]


def _signs(parts: int) -> Sequence[str]:
    """A sign for each of so many parts: one character each, or numbers if there are
    more parts than SIGNS."""
    if parts <= len(SIGNS):
        return SIGNS[:parts]
    return [str(number) for number in range(1, parts + 1)]


def _mark(sign: str, width: int, ends: Sequence[str]) -> list[str]:
    """The characters of a mark, `width` of them: `└─3─┘`, or where that does not fit
    the sign alone, filled up with the middle of the underline or cut."""
    left, middle, right = ends
    if width <= len(sign) + 1:
        return list(sign[:width].ljust(width, middle))
    return list(left + sign.center(width - 2, middle) + right)
