# SPDX-License-Identifier: Apache-2.0
"""Reports and plots as a page, by the template beside this module, and by jinja2, which the extra ``plots`` installs.

Text from a store can't get out of the markup: whatever the template gets is escaped, controls and directions of writing
included. A browser loads and runs nothing for a page. The style is light or dark as the reader's system is, or as the
notebook or the site is that shows it.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from store_core.answers.shown_text import escape_text
from store_core.errors import UnsupportedStoreError
from store_core.version import __version__

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["page", "part"]


def page(title: str, **content: object) -> str:
    """Return content as one HTML file: style and plots are inside, and it refers to nothing elsewhere."""
    return _template().render(content | {"title": title, "is_page": True, "version": __version__})


def part(**content: object) -> str:
    """Return content as a part of a page, whose background stays as it is."""
    return _template().render(content | {"is_page": False, "version": __version__})


@cache
def _template() -> Template:
    try:
        from jinja2 import Environment
    except ModuleNotFoundError as error:
        raise UnsupportedStoreError("pages and plots need jinja2: pip install 'jinja2>=3.1'") from error
    environment = Environment(autoescape=True, finalize=_shown, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(files("store_core.answers").joinpath("page.html").read_text(encoding="utf-8"))


def _shown(value: Any) -> Any:  # noqa: ANN401 -- whatever the template has
    r"""Return text without what could change how other text is shown; jinja2 then escapes what HTML knows."""
    return escape_text(value) if type(value) is str else value
