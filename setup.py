"""What pyproject.toml cannot say: what depends on the place of the repository, which no
file of it knows, and the parts that are compiled.

With FUSETUI_URL set, there are the URLs of the project, and the links of the README are
absolute. What is written in C is left out where there is no compiler, or with
FUSETUI_PURE set: then Python computes the same.

FUSETUI_URL=https://... FUSETUI_PURE=1 python -m build
"""

from __future__ import annotations

import os
import re
from pathlib import Path

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


if __name__ == "__main__":
    from setuptools import Extension, setup

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
        ext_modules=[] if pure else compiled,
        options={} if pure else {"bdist_wheel": {"py_limited_api": "cp311"}},
    )
