"""The wheels that a machine without a network needs beside its own torch: `make
wheels`.

    python -P benchmarks/wheels.py [--python 3.12] [--arch x86_64] [--out build/wheels]

Downloads what fusetui imports, and what the GPU tests run with, for Linux. There

    python -m pip install --no-index --find-links build/wheels -r
    build/wheels/requirements.txt

installs them. Ends with an error where they are more than 50 MiB in all.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_BYTES = 50 * 2**20
GLIBC_MINORS = range(17, 35)
"""manylinux_2_17 to manylinux_2_34: pip takes a wheel only for a platform that is
named."""
FOR_TESTS = ("pytest", "pytest-asyncio")
"""setuptools, which torch.compile builds C++ with, comes with torch, in a version that
suits it."""


def requirements() -> list[str]:
    """Return what fusetui needs and what its GPU tests run with, with the bounds that
    pyproject.toml gives."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    development = project["optional-dependencies"]["dev"]
    of_tests = [line for line in development if line.split(">=")[0] in FOR_TESTS]
    return [*project["dependencies"], *of_tests]


def list_platforms(arch: str) -> list[str]:
    """Return the platforms of wheels for Linux, as pip names them, the newest first."""
    newest_first = [f"manylinux_2_{minor}_{arch}" for minor in reversed(GLIBC_MINORS)]
    return [*newest_first, f"manylinux2014_{arch}"]


def command(python: str, arch: str, out: Path) -> list[str]:
    """Return the command line with which pip downloads the wheels into `out`, for this
    version of Python and this architecture."""
    line = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--only-binary=:all:",
        "--dest",
        str(out),
    ]
    line += ["--implementation", "cp", "--python-version", python]
    for platform in list_platforms(arch):
        line += ["--platform", platform]

    return [*line, *requirements()]


def main() -> None:
    """Download the wheels into the folder, in place of older ones, and print how large
    they are. Exits with an error if they are more than 50 MiB."""
    parser = argparse.ArgumentParser(
        description="Downloads what a machine without network needs."
    )
    parser.add_argument("--python", default="3.12")
    parser.add_argument("--arch", default="x86_64", help="x86_64 or aarch64")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "wheels")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    for old in options.out.glob("*.whl"):
        old.unlink()

    code = subprocess.run(command(options.python, options.arch, options.out)).returncode
    if code:
        sys.exit(code)

    (options.out / "requirements.txt").write_text("\n".join(requirements()) + "\n")
    sizes = [wheel.stat().st_size for wheel in options.out.glob("*.whl")]
    print(f"{len(sizes)} wheels in {options.out}, {sum(sizes) / 2**20:.1f} MiB")

    if sum(sizes) > MOST_BYTES:
        sys.exit(f"that is more than {MOST_BYTES // 2**20} MiB")


if __name__ == "__main__":
    main()
