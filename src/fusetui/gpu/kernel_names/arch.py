"""GPU generations: what `sm_80`, `ampere` or `gfx942` in a kernel name stands for.

Sources: the CUDA C++ programming guide (compute capabilities) and the LLVM AMDGPU user guide (gfx).
The token is the target a kernel was built for; the device that ran it may be a later one.
"""

from __future__ import annotations

from typing import Final

_SM_NAMES: Final = {
    **dict.fromkeys(("30", "35", "37"), "Kepler"),
    **dict.fromkeys(("50", "52", "53"), "Maxwell"),
    **dict.fromkeys(("60", "61", "62"), "Pascal"),
    **dict.fromkeys(("70", "72"), "Volta"),
    "75": "Turing",
    **dict.fromkeys(("80", "86", "87"), "Ampere"),
    "89": "Ada",
    "90": "Hopper",
    **dict.fromkeys(("100", "101", "103", "110", "120", "121"), "Blackwell"),
}

_GFX_NAMES: Final = {
    "908": "CDNA1",
    "90a": "CDNA2",
    **dict.fromkeys(("940", "941", "942"), "CDNA3"),
    "950": "CDNA4",
    **dict.fromkeys(("1030", "1031", "1032"), "RDNA2"),
    **dict.fromkeys(("1100", "1101", "1102"), "RDNA3"),
    **dict.fromkeys(("1200", "1201"), "RDNA4"),
}

# The words of cuBLAS and cuDNN. Those of libcublasLt 12.8 hold code for one capability only when
# the word is ampere or turing; volta covers sm_70 and sm_75, maxwell sm_50 to sm_61.
_WORDS: Final = {
    "kepler": ("Kepler", None),
    "maxwell": ("Maxwell", None),
    "pascal": ("Pascal", None),
    "volta": ("Volta", None),
    "turing": ("Turing", "sm75"),
    "ampere": ("Ampere", "sm80"),
    "hopper": ("Hopper", None),
}

WORD_PATTERN: Final = "|".join(_WORDS)


def from_capability(capability: str | None) -> dict[str, str]:
    """The fields of a compute capability; "100a" and "100f" lose their letter."""
    digits = (capability or "").rstrip("af")
    name = _SM_NAMES.get(digits)
    return {"arch": f"sm{digits}", "arch_name": name} if name else {}


def from_word(word: str) -> dict[str, str]:
    """The fields of a generation word such as `ampere`."""
    name, arch = _WORDS[word]
    return {"arch_name": name} if arch is None else {"arch": arch, "arch_name": name}


def from_gfx(code: str | None) -> dict[str, str]:
    """The fields of an AMD target such as `90a`; `000` means any device and determines nothing."""
    name = _GFX_NAMES.get(code or "")
    return {"arch": f"gfx{code}", "arch_name": name} if name else {}
