"""What pyproject.toml cannot say: what depends on the place of the repository, which no
file of it knows, the folders of the packages, and the parts that are compiled.

With FUSETUI_URL set, there are the URLs of the project, and the links of the README are
absolute. What is written in C is left out where there is no compiler, or with
FUSETUI_PURE set: then Python computes the same.

FUSETUI_URL=https://... FUSETUI_PURE=1 python -m build
"""

from __future__ import annotations

import os
import re
from pathlib import Path

BESIDE_SRC = ("capture", "kernels", "sample_traces", "tui")
"""Packages of fusetui with a folder beside src, to which src/fusetui holds a link."""

LINK = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\((?!https?://|#)([^()\s]+)\)")


def absolute(text: str, url: str, tag: str) -> str:
    """Markdown whose relative links lead into the repository at this tag, and its
    pictures to their bytes."""

    def link(found: re.Match[str]) -> str:
        place = "raw" if found[1] else "blob"
        return f"{found[1]}[{absolute(found[2], url, tag)}]({url}/{place}/{tag}/{found[3]})"

    return LINK.sub(link, text)


def urls(url: str, tag: str) -> dict[str, str]:
    """The URLs of the project by their labels."""
    return {
        "Source": url,
        "Documentation": f"{url}/tree/{tag}/docs",
        "Changelog": f"{url}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{url}/issues",
    }


def metadata() -> dict[str, object]:
    """What depends on the place of the repository. Raises SystemExit for what is no
    URL."""
    here = Path(__file__).parent
    init = (here / "src/fusetui/__init__.py").read_text(encoding="utf-8")
    tag = "v" + re.findall(r'^__version__ = "(.+)"$', init, re.MULTILINE)[0]
    url = os.environ.get("FUSETUI_URL", "").removesuffix(".git").rstrip("/")
    readme = (here / "README.md").read_text(encoding="utf-8")
    if not url:
        return {"long_description": readme}
    if not re.fullmatch(r"https://[^\s/]+/\S+", url):
        raise SystemExit(f"FUSETUI_URL is no https:// address of a repository: {url}")
    return {
        "long_description": absolute(readme, url, tag),
        "project_urls": urls(url, tag),
    }


def package_folders(root: Path) -> dict[str, str]:
    """The folders of the packages that are not where setuptools looks for them. Git on
    Windows and most programs for ZIP write a small file instead of each link, and a
    source distribution made there has neither: then the folder itself is the package.
    """
    folders = {"": "src"}
    for name in BESIDE_SRC:
        if not (root / "src" / "fusetui" / name).is_dir():
            folders[f"fusetui.{name}"] = name
    return folders


def packages(root: Path) -> list[str]:
    """All packages, with those whose folder is beside src."""
    from setuptools import find_packages

    names: list[str] = []
    for package, folder in package_folders(root).items():
        within = find_packages(str(root / folder))
        if package:
            names.append(package)
            names += [f"{package}.{name}" for name in within]
        else:
            names += within
    return names


if __name__ == "__main__":
    from setuptools import Extension, setup

    here = Path(__file__).parent

    compiled = [
        Extension(
            name=f"fusetui.{module}",
            sources=[f"src/fusetui/{module.replace('.', '/')}.c"],
            py_limited_api=True,
            optional=True,
        )
        for module in ("trace.read.scan", "trace.layout.nested")
    ]
    pure = bool(os.environ.get("FUSETUI_PURE"))
    setup(
        **metadata(),
        long_description_content_type="text/markdown",
        packages=packages(here),
        package_dir=package_folders(here),
        ext_modules=[] if pure else compiled,
        options={} if pure else {"bdist_wheel": {"py_limited_api": "cp311"}},
    )
