# SPDX-License-Identifier: Apache-2.0
"""Markup that text from a store can't get out of: only what is made here has the type that goes into a page."""

from __future__ import annotations

from html import escape
from typing import NewType

from store_core.answers.text.shown_text import escape_text

__all__ = ["Markup", "element", "joined", "shown"]

Markup = NewType("Markup", str)
"""HTML or SVG in which all text is escaped."""


def shown(text: str) -> Markup:
    r"""Return text as markup: what has a meaning in HTML, controls and directions of writing are escaped.

    Examples
    --------
    >>> shown("<b> & \u202e")
    '&lt;b&gt; &amp; \\u202e'
    """
    return Markup(escape(escape_text(text)))


def element(name: str, *inside: Markup, **attributes: str | float) -> Markup:
    """Return an element; values of attributes are escaped, and ``_`` in their names is ``-``, or nothing at the end.

    Examples
    --------
    >>> element("p", shown("one"), class_="note")
    '<p class="note">one</p>'
    """
    shown_attributes = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{shown(str(value))}"' for name, value in attributes.items()
    )
    return Markup(f"<{name}{shown_attributes}>{''.join(inside)}</{name}>")


def joined(*parts: Markup) -> Markup:
    """Return markup that follows each other, a part a line."""
    return Markup("\n".join(parts))
