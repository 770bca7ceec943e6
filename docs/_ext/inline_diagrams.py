# SPDX-License-Identifier: Apache-2.0
"""Puts the SVG files of ``docs/diagrams`` into the page itself, where they take the colours of the theme.

In Markdown they are plain images, so that they show on other sites that render the documents, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class InlineDiagrams(SphinxPostTransform):
    """Replaces images of diagrams by their text, when HTML is written."""

    default_priority = 5
    formats = ("html",)

    def run(self, **_: Any) -> None:  # noqa: ANN401 -- as Sphinx declares it
        """Replace them, in one document."""
        for image in list(self.document.findall(nodes.image)):
            path = Path(self.env.srcdir, image["uri"])
            if path.parent.name == "diagrams" and path.suffix == ".svg":
                self.env.note_dependency(str(path))
                text = path.read_text(encoding="utf-8")
                image.replace_self(nodes.raw("", f'<div class="diagram">{text}</div>', format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_post_transform(InlineDiagrams)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
