"""Common words: they identify nobody, and names of ops and kernels are made of them.

A user may be called `max`: then `aten::max` must stay, and the name is removed only where it is
used as a user's name: after a key such as `username`, in a home folder, before an @.
"""

from __future__ import annotations

import re
from functools import cache

from fusetui.trace.model.aten_ops import ATEN_OPS

SHORTEST = 3  # characters of a name that is searched for everywhere
PART = re.compile(r"[A-Za-z]+")

_ACCOUNTS = """root admin administrator user users username guest nobody anonymous test tests tester
    testing dev devs developer ubuntu debian centos fedora rocky ec2 opc azureuser runner runners
    jenkins gitlab github actions build builder worker workers node nodes host hosts hostname
    localhost localdomain local master main server servers client service services system daemon
    docker container app apps work workspace home data jovyan vscode codespace coder cloud prod
    production staging default none null unknown scrubbed me myself someone somebody synthetic
    research lab team machine computer laptop desktop public private shared scratch tmp temp login
    owner author git ssh http https www web api dir mail secret command"""
_FIELD = """python conda miniconda anaconda jupyter notebook gpu gpus cuda hip rocm cpu cpus nvidia
    amd intel google meta facebook apple torch pytorch torchvision triton tensorflow keras jax flax
    numpy scipy vllm sglang transformers huggingface flash attention kernel kernels stream streams
    thread threads process processes profiler profile trace traces tracing step steps model models
    train trainer training infer inference eval evaluation run runs running job jobs task tasks rank
    ranks world group groups backend nccl rccl gloo mpi ucc device devices driver runtime memory
    alloc allocator free launch launches graph graphs event events record wait sync synchronize
    query create destroy get set attribute attributes properties count current context module
    modules function functions func load loader unload register host pinned pageable async copy
    memcpy memset fill peer access enable disable capture begin end start stop pool mode flags size
    sizes shape shapes name names type types cat category args arg ph ts dur pid tid id ids label
    labels sort index correlation external queue overhead buffer flush request lazy loading layer
    layers block blocks head heads hidden batch batches seq token tokens embed embedding embeddings
    encoder decoder forward backward optimizer optim adam adamw sgd loss grad grads gradient weight
    weights bias param params parameter parameters input inputs output outputs query key value keys
    values cache prefill decode sample sampler sampling scheduler schedule engine executor request
    response fused fuse fusion tile tiles warp warps persistent split reduce reduction pointwise red
    poi per tem gemm gemv conv matmul linear silu gelu swish rope rms norm layernorm compiled
    compile dynamo inductor autograd autocast dispatch dispatcher region wrapper prologue epilogue
    code cached lookup call callable builtin method object string bytes int float double half bool
    long short char void const static inline template class struct namespace anonymous lambda
    operator iterator array tuple list dict map unordered vector std detail internal impl native
    simple basic fast slow small large tiny base mini micro nano first last next previous one two
    three four five six seven eight nine ten alpha beta gamma delta omega sigma"""


@cache
def common_words() -> frozenset[str]:
    parts = {part for name in ATEN_OPS for part in PART.findall(name) + name.split("_")}
    operators = {word.lower() for word in (*ATEN_OPS, *parts)}
    return frozenset({*operators, *_ACCOUNTS.split(), *_FIELD.split()})


def is_common(name: str) -> bool:
    """Whether searching for this name everywhere would hit other things."""
    lower = name.lower()
    if len(lower) < SHORTEST or not PART.search(lower):
        return True
    return lower in common_words()
