"""The configuration of a model: config.json of transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LARGEST = 1 << 22  # bytes
DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
"""Types as configurations name them."""


class NoConfig(Exception):  # noqa: N818
    """The configuration cannot be used; the message is one plain sentence."""


def read_config(path: str) -> Mapping[str, Any]:
    """The configuration of a model; that of the text model, if it has several. Raises NoConfig."""
    try:
        file = Path(path)
        if file.stat().st_size > LARGEST:
            raise NoConfig(f"{path} is too large to be the configuration of a model.")
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise NoConfig(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise NoConfig(f"{path} is not JSON.") from None
    text = found.get("text_config", found) if isinstance(found, dict) else None
    if not isinstance(text, dict) or whole(text, "num_hidden_layers") is None:
        raise NoConfig(f"{path} has no num_hidden_layers: it is not the config.json of a model.")
    return {**found, **text}


def whole(config: Mapping[str, Any], key: str) -> int | None:
    """A positive number of the configuration."""
    value: object = config.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31:
        return value
    return None
