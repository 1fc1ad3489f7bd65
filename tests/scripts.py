"""The scripts of benchmarks/ as modules."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

from tests.places import ROOT


def benchmark(name: str) -> Any:
    """The module benchmarks/NAME.py, executed."""
    spec = spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
