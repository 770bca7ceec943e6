# SPDX-License-Identifier: Apache-2.0
"""Folds long tables and the names of a section on pages of the reference, so that a page can be looked over.

The text stays in the page: a browser opens what is folded when it is searched, or when a link leads into it.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from docutils import nodes
from sphinx import addnodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PAGES: Final = ("FORMAT", "about", "options", "reports", "views", "api/python", "api/spark")
ROWS: Final = 3
"""A table of more rows is folded."""

TITLE_AND_WORDS: Final = 2
"""Of the section of a report, what is always shown."""


def fold(_app: Sphinx, tree: nodes.document, page: str) -> None:
    """Fold a page of the reference."""
    if page not in PAGES:
        return
    for section in tree.findall(nodes.section) if page == "reports" else ():
        if section.children[TITLE_AND_WORDS:] and isinstance(section.parent, nodes.section):
            _wrap(list(section.children[TITLE_AND_WORDS:]), "facts and tables")
    for table in list(tree.findall(nodes.table)):
        rows = sum(1 for body in table.findall(nodes.tbody) for _ in body.children)
        if rows > ROWS:
            heads = [entry.astext() for head in table.findall(nodes.thead) for entry in head.findall(nodes.entry)]
            _wrap([table], f"{rows} rows: {', '.join(head for head in heads if head)}")
    for section in list(tree.findall(nodes.section)):
        described = [child for child in section.children if isinstance(child, addnodes.desc)]
        if described:
            names = [next(iter(each.findall(addnodes.desc_signature)))["fullname"] for each in described]
            of_names = (addnodes.desc, addnodes.index)
            _wrap([child for child in section.children if isinstance(child, of_names)], ", ".join(names))


def _wrap(found: list[nodes.Node], summary: str) -> None:
    parent = found[0].parent
    first = parent.index(found[0])
    opening = f'<details class="folded"><summary>{escape(summary)}</summary>'
    parts = [nodes.raw("", opening, format="html"), *found, nodes.raw("", "</details>", format="html")]
    for each in found:
        parent.remove(each)
    parent.insert(first, parts)


def setup(app: Sphinx) -> None:
    """Connect it."""
    app.connect("doctree-resolved", fold)
