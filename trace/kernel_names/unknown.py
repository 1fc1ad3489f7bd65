"""A readable text for a name that no family recognizes."""

from __future__ import annotations

import re
from typing import Final

from fusetui.trace.kernel_names.cxx import Signature, signature, split_args
from fusetui.trace.kernel_names.text import cut

_HEAD: Final = 400
_BRACKETS: Final = {"[": "(", "]": ")"}
_CUT = re.compile(r"[<(]")
_WORD = re.compile(r"\w{1,40}")


def base_text(name: str) -> str:
    """Scope and base name without template arguments and parameters, safe and short.

    >>> base_text("std::enable_if<true>::type run(int)"), base_text("")
    ('run', '(no name)')
    >>> base_text("gemm_<float, float>_nt_v1")
    'gemm_..._nt_v1'
    """
    sign = signature(name)
    if sign is not None:
        scope = sign.scope.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
        text = scope + sign.base + _after(name, sign)
    else:
        text = _CUT.split(name[:_HEAD], maxsplit=1)[0].strip() or name[:_HEAD].strip()
    return cut(escaped(text[:_HEAD]), "…") or "(no name)"


def _after(name: str, sign: Signature) -> str:
    """What some write after template arguments: `..._nt` of `gemm<float>_nt`."""
    if sign.args < 0 or sign.mangled:
        return ""
    found = _WORD.match(name, split_args(name, sign.args)[1])
    return f"...{found[0]}" if found else ""


def escaped(text: str) -> str:
    """Letters of any script stay; controls, direction marks and brackets do not.

    >>> escaped("a\\tb")
    'a\\\\tb'
    """
    return "".join(_escaped(char) for char in text)


def _escaped(char: str) -> str:
    if char.isprintable():
        return _BRACKETS.get(char, char)
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
