# SPDX-License-Identifier: Apache-2.0
"""The fenced blocks of a Markdown document, its links and its anchors."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

_FENCE: Final = re.compile(r"(?P<indent> *)(?P<fence>`{3,}|~{3,})\s*(?P<info>.*)$")
_CODE: Final = ("{code-block} ", "{code} ")
_OPAQUE: Final = ("{toctree}", "{include}", "{literalinclude}", "{eval-rst}")
"""Directives whose content is for Sphinx; the content of all others is Markdown."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code.

    * `document`: Relative to the repository.
    * `line`: Number of the fence's line; the text begins on the next one.
    """

    document: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line} ({self.language or 'no language'})"


def documents() -> list[str]:
    """List the documents whose blocks are executed, and whose links are followed."""
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md")]
    found = [*top, *ROOT.glob("spark-conf/*.md"), *ROOT.glob("docs/**/*.md")]
    built = ROOT / "docs" / "_build"
    return sorted(str(path.relative_to(ROOT)) for path in found if built not in path.parents)


def blocks_of(document: str, text: str) -> list[Block]:
    """Find the blocks, in order, including those in directives that contain Markdown."""
    blocks: list[Block] = []
    around: list[str] = []  # fences of the directives around this line
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        opened = _FENCE.match(line)
        if opened is None:
            continue
        indent, fence, info = opened["indent"], opened["fence"], opened["info"].strip()
        if around and not info and fence.startswith(around[-1]):
            around.pop()
            continue
        if info.startswith("{") and not info.startswith((*_CODE, *_OPAQUE)):
            around.append(fence)
            continue
        content = []
        for _, inner in lines:
            closed = _FENCE.match(inner)
            if closed and not closed["info"] and closed["fence"].startswith(fence):
                break
            content.append(inner.removeprefix(indent))
        else:
            raise ValueError(f"{document}:{number}: this block is not closed")
        if not info.startswith(_OPAQUE):
            language = info.split()[-1] if info.startswith(_CODE) else info.partition(" ")[0]
            blocks.append(Block(document, number, language, "\n".join(content) + "\n"))
    return blocks


_FENCED: Final = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1?\2`*\s*$", re.MULTILINE | re.DOTALL)
_INLINE_CODE: Final = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK: Final = re.compile(r"\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
_CARD: Final = re.compile(r"^:link: (\S+)\s*$", re.MULTILINE)
_IMAGE: Final = re.compile(r"\b(?:src|srcset)=\"([^\"\s]+)\"|^`{3,}{image} (\S+)$", re.MULTILINE)
_HEADING: Final = re.compile(r"^#{1,6} (.+?)\s*#*$", re.MULTILINE)
_MARKUP: Final = re.compile(r"[*_`]|\[([^\]]*)\]\([^)]*\)")


def links_of(text: str) -> list[str]:
    """Find the targets of links and images: addresses, and paths with or without an anchor."""
    prose = _INLINE_CODE.sub("", _without_code(text))
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
