# SPDX-License-Identifier: Apache-2.0
"""The links and anchors of a Markdown document."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

_FENCED: Final = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1?\2`*\s*$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK: Final = re.compile(r"\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
_CARD: Final = re.compile(r"^:link: (\S+)\s*$", re.MULTILINE)
_IMAGE: Final = re.compile(r"\b(?:src|srcset)=\"([^\"\s]+)\"|^`{3,}{image} (\S+)$", re.MULTILINE)
_HEADING: Final = re.compile(r"^#{1,6} (.+?)\s*#*$", re.MULTILINE)
_MARKUP: Final = re.compile(r"[*_`]|\[([^\]]*)\]\([^)]*\)")


def links_of(text: str) -> list[str]:
    """Find the targets of links and images: addresses, and paths with or without an anchor."""
    prose = _CODE.sub("", _without_code(text))
    cards = [f"{name}.md" for name in _CARD.findall(text)]
    images = ["".join(names) for names in _IMAGE.findall(text)]
    return [*_LINK.findall(prose), *cards, *images]


def anchors_of(text: str) -> set[str]:
    """Return the anchors of a document's headings, as GitHub and MyST make them."""
    names = Counter[str]()
    anchors = set()
    for heading in _HEADING.findall(_without_code(text)):
        words = _MARKUP.sub(r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        anchors.add(f"{name}-{names[name]}" if names[name] else name)
        names[name] += 1
    return anchors


def _without_code(text: str) -> str:
    return _FENCED.sub("", text)
