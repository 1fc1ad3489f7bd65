"""Which Python frames are of the user's own code, by their names.

torch names a frame `path.py(42): function`, with the line of the `def`, and takes the folders of
sys.path off the path (torch/csrc/autograd/profiler_python.cpp, torch/_C/_profiler). So packages
that were installed look like those of the user: the ones that programs are built on are listed
here. Libraries of whole models count as own code, as that is where a model's time has names.
"""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

from fusetui.trace.model.op_names import words

FRAME = re.compile(r"(.+?)\((\d{1,9})\): (.+)\Z", re.DOTALL)

SCRIPTS = frozenset({"cmd", "code", "profile", "test", "timeit", "trace"})
"""Modules of the standard library whose names programs rather bear themselves."""

STANDARD = frozenset(sys.stdlib_module_names) - SCRIPTS

LIBRARIES = words(
    """IPython PIL absl accelerate apex attr attrs boto3 botocore click cloudpickle cupy
    cv2 datasets debugpy deepspeed dill einops fsspec functorch huggingface_hub hydra
    intel_extension_for_pytorch ipykernel jaxtyping joblib lightning lightning_fabric
    loguru matplotlib msgpack msgspec numba numpy omegaconf pandas pluggy psutil pyarrow
    pydantic _pytest pytest pytorch_lightning ray regex requests rich safetensors scipy
    six skimage sklearn sympy tensorboard tokenizers torch torch_npu torch_xla torchgen
    torchmetrics tornado tqdm traitlets triton typeguard typing_extensions urllib3 wandb
    yaml zmq"""
)
TOLD = re.compile(
    r"(?:\A|/)(?:site-packages|dist-packages|lib/python[0-9.]+|torchinductor_[^/]*)/", re.IGNORECASE
)
"""Folders of what was installed, and of what torch.compile generated."""

TYPED = ("<stdin>", "<ipython-input", "<cell")
"""Code that was typed, which has no file; what else has none was generated or is built in."""


class Function(NamedTuple):
    """A function by where it is defined."""

    file: str
    line: int
    name: str


def function_of(name: str) -> Function | None:
    """The function of a Python frame; None when it has no line, as built-in ones.

    >>> function_of("my_model.py(42): forward")
    Function(file='my_model.py', line=42, name='forward')
    """
    found = FRAME.match(name)
    return Function(found[1], int(found[2]), found[3]) if found else None


def is_own(file: str) -> bool:
    """Is this file of the user's own code, as far as its path tells.

    >>> is_own("my_model.py"), is_own("torch/nn/modules/linear.py"), is_own("threading.py")
    (True, False, False)
    """
    path = file.replace("\\", "/")
    if path.startswith("<"):
        return path.startswith(TYPED)
    if TOLD.search(path):
        return False
    package = path.partition("/")[0].removesuffix(".py")
    return package not in STANDARD and package not in LIBRARIES


def is_in(file: str, wanted: str) -> bool:
    """Is this the wanted file, or in the wanted folder; the last part of either is enough.

    >>> is_in("src/my_model.py", "my_model.py"), is_in("transformers/models/a.py", "models")
    (True, True)
    """
    path, part = (f"/{text.replace(chr(92), '/').strip('/')}/" for text in (file, wanted))
    return part in path
