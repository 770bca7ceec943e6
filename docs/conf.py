# SPDX-License-Identifier: Apache-2.0
"""How Sphinx makes the site: `make docs`. Nothing is fetched while it is built, or by whoever reads it."""

from __future__ import annotations

import os
import re
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING

from pygments.lexers.configs import PropertiesLexer
from sphinx.highlighting import lexers

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE / "_ext"), str(ROOT), str(ROOT / "connector")]

project = "pyspark-commitlog"
author = "the pyspark-commitlog developers"
version = release = version_of("pyspark-commitlog")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "numpydoc",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "sphinx_design",
    "inline_diagrams",
    "folded",
]
# Pages for those who read the repository: neither on the site nor found by its search.
OFF_SITE = ("adr", "decisions.md", "modules.md", "benchmarks.md", "reliability.md", "tested.md", "how-it-works.md")
LINK_OFF_SITE = re.compile(rf"\[([^\[\]]*)\]\((?:\.\./)*(?:docs/)?((?:{'|'.join(OFF_SITE)})[^)#]*)(?:#[^)]*)?\)")
PARTS = ("exit-codes.md", "compatibility.md", "releases.md")  # of other pages, which include them
exclude_patterns = ["_build", "images/README.md", *OFF_SITE, *PARTS]
nitpicky = True
html_use_index = False

# ------------------------------------------------------------------------------------------------------------- markdown

myst_enable_extensions = ["colon_fence", "deflist", "attrs_block", "substitution"]
myst_substitutions = {"version": version}
myst_html_meta = {
    "description": "Opens the store of an Apache RocketMQ broker to the shell, Python and Spark, with no broker."
}
myst_heading_anchors = 4
nb_execution_mode = "off"  # the tests execute the notebooks; their outputs are committed

# ------------------------------------------------------------------------------------------------------------ reference

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "inherited-members": True}
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
default_role = "code"  # docstrings name arguments, options and files in single backquotes; most are no objects
nitpick_ignore_regex = [
    # What is not ours has its own reference, which a build without network doesn't know.
    ("py:.*", r"(?!store_core|pyspark_commitlog).*"),
    # Parts of a store and of a report, which the guides show by examples; their names are no promise.
    (
        "py:.*",
        r"store_core\.(snapshot|answers\.plots|files\.store_kind|store\.(rebuild\.index_files|read\.lookup))\..*",
    ),
    # what pulls and gets pass on within the package
    ("py:.*", r"store_core\.(broker\.(consumer_filter|pull_checks)|format\.filter\.message_selector)\..*"),
    ("py:.*", r"(store_core\.answers\.answer|pyspark_commitlog\.answers)\.AnyReport"),  # that of an answer
]
# Inventories of other projects make links to their references, for whoever has a network or files of them:
# DOCS_INVENTORIES="python=https://docs.python.org/3/ numpy=/path/to/objects.inv" make docs
intersphinx_mapping = {
    name: (target, None)
    for name, _, target in (item.partition("=") for item in os.environ.get("DOCS_INVENTORIES", "").split())
}

# ----------------------------------------------------------------------------------------------------------------- site

html_theme = "pydata_sphinx_theme"
html_title = "pyspark-commitlog"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["site.css"]
html_search_scorer = str(HERE / "_static" / "search_scorer.js")
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "pyspark-commitlog"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {page: [] for page in ("index", "search", "genindex")}
lexers["conf"] = PropertiesLexer()  # as Spark writes its settings: a name, blanks, a value
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_selector = "div:not(.output):not(.highlight-text) > div.highlight pre"

linkcheck_timeout = 20
linkcheck_workers = 2


def copy_notebooks() -> None:
    """Bring the notebooks below the documents, where Sphinx looks for its sources; their links lead from there."""
    target = HERE / "notebooks"
    texts = {path.name: path.read_text(encoding="utf-8") for path in ROOT.joinpath("notebooks").glob("*.ipynb")}
    target.mkdir(exist_ok=True)
    for stale in target.glob("*.ipynb"):
        if stale.name not in texts:
            stale.unlink()
    for name, text in texts.items():
        target.joinpath(name).write_text(text.replace("](../docs/", "](../"), encoding="utf-8")


def without_links_off_site(_app: Sphinx, _document: str, source: list[str]) -> None:
    """Keep the text of a link to a page that is not on the site, or else that page's title."""
    source[0] = LINK_OFF_SITE.sub(lambda link: link[1] or title_of(HERE / link[2]), source[0])


def title_of(page: Path) -> str:
    """Return the first heading of a page."""
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def setup(app: Sphinx) -> None:
    """Prepare the sources."""
    copy_notebooks()
    app.connect("source-read", without_links_off_site)
    app.connect("include-read", lambda app, _path, document, source: without_links_off_site(app, document, source))
