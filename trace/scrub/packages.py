"""Publicly available packages. The profiler strips paths up to site-packages, so that
`torch/nn/modules/linear.py` is all that it records of one of their files.
"""

from __future__ import annotations

_STANDARD = """asyncio collections compression concurrent ctypes curses dbm distutils email
    encodings ensurepip html http importlib json lib2to3 logging multiprocessing pathlib
    pydoc_data re sqlite3 sysconfig tkinter tomllib unittest urllib venv
    wsgiref xml xmlrpc zoneinfo"""
_FIELD = """accelerate aiohttp aiter albumentations alembic altair amdsmi anthropic anyio apex
    apscheduler astropy attrs auto_gptq autoawq awq axolotl bitsandbytes bokeh boto3 botocore
    brotli bs4 cachetools causal_conv1d certifi chardet charset_normalizer clip cloudpickle
    colorama compressed_tensors cupy cv2 cython dask deep_ep deep_gemm deepspeed diffusers dill
    einops executorch fairscale fairseq fastapi fbgemm_gpu filelock flash_attn flashinfer flax
    fsspec functorch gevent gguf gradio grpc gunicorn gymnasium h11 h2 h5py haiku httpcore
    httptools httpx huggingface_hub hydra hypothesis idna imageio importlib_metadata ipykernel
    IPython jax jaxlib jinja2 joblib jsonschema jupyter_client jupyter_core keras kornia
    lightning lightning_fabric litellm llvmlite lm_eval lmdb loguru lxml mamba_ssm marshmallow
    matplotlib matplotlib_inline megatron ml_dtypes mlflow mmcv mmdet mmengine monai mpi4py
    msgpack msgspec multidict nbclient nbconvert nemo nest_asyncio networkx ninja nltk numba
    numexpr numpy nvtx omegaconf onnx onnxruntime open_clip openai opentelemetry opt_einsum
    optax optimum optree optuna orjson packaging pandas peft PIL pip pkg_resources platformdirs
    plotly pluggy polars prometheus_client prompt_toolkit psutil psycopg2 pyarrow pybind11
    pycuda pydantic pydantic_core pydantic_settings pygments pylab pynvml pytest
    pytorch_lightning pytz qtpy ray redis regex requests safetensors scipy seaborn
    sentence_transformers sentencepiece sentry_sdk setproctitle setuptools sgl_kernel sglang
    shapely sklearn skimage smart_open sniffio soundfile soxr spacy sqlalchemy starlette
    streamlit sympy tensorboard tensorboardX tensorflow tensorrt tensorrt_llm tensorstore
    termcolor tiktoken timm tokenizers toolz torch torch_geometric torch_scatter torch_sparse
    torch_tensorrt torch_xla torchao torchaudio torchdata torchelastic torchmetrics torchrec
    torchtext torchtitan torchtune torchvision torchviz torchx tornado tqdm traitlets
    transformer_engine transformers triton triton_kernels trl typer typing_extensions
    ultralytics urllib3 uvicorn uvloop viztracer vllm wandb watchfiles websockets werkzeug
    xformers xgboost xgrammar yaml yarl zmq zstandard"""

PACKAGES: frozenset[str] = frozenset(f"{_STANDARD} {_FIELD}".split())
"""The first folder of a relative path into such a package. Names that users also give to folders of
their own (datasets, evaluate, docker) are left out."""
