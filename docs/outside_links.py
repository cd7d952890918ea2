"""A hook of MkDocs: pages may link to documents outside of docs/, as they do on GitHub, and these join the site.

They are the documents of studies and measurements with their figures, and those at the root of the repository. A link
from a page leaves docs/ by one `..` more than the site has; a link from one of these documents enters docs/.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = (
    "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff", "examples/*.*", "examples/own_placer/*.*",
    "evaluation/studies/*/*.md", "evaluation/studies/*/*.png", "evaluation/gpu_check/measured/*.md",
)  # fmt: skip
LINK = re.compile(r"(?<=\]\()([^)\s:#]+)(?=[)#])")  # [text](this#there), not https://...
README = "about.md"  # its name on the site, where a README would be the home page


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents outside of docs/ to those of the site."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, README if name == "README.md" else name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: object) -> str:
    """Write links as the site has them; one to a file that is not on it becomes text."""
    own = page.file.src_uri
    is_outside = page.file.generated_by is not None
    home = posixpath.dirname("README.md" if own == README else own if is_outside else f"docs/{own}")

    def on_site(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(home, link[1]))
        there = README if target == "README.md" else target.removeprefix("docs/")
        return posixpath.relpath(there, posixpath.dirname(own) or ".") if files.get_file_from_path(there) else link[1]

    return LINK.sub(on_site, markdown)
