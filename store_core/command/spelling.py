# SPDX-License-Identifier: Apache-2.0
"""Messages of the core in the words of a command: they name options as Python and Spark do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

from store_core.store.read.option_table import READ_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Params = Mapping[str, click.Parameter]

__all__ = ["spelled"]

_FIELDS: Final = frozenset(option.field for option in READ_OPTIONS)
_OF_SPARK: Final = re.compile(r" \((?:\w+ in Spark|in Spark [^)]*)\)")
_SETTING: Final = re.compile(r"(?<![\w-])([a-z_]+)=([A-Za-z0-9]+(?:\.[0-9]+)*)(?!\w)")
_NAMED: Final = re.compile(r"(?<![\w-])options? ([a-z_]+)(?!\w)")
_SUBJECT: Final = re.compile(r"^([a-z_]+)(?=: )")
_LIST: Final = re.compile(r"(?<=which takes )[a-z_]+(?:, [a-z_]+)*")
_FLAG: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_PROGRAM: Final = re.compile(r"(?<![\w/-])(?:commitlog(?:-[a-z-]+| [a-z]+)|tar)(?= )")
_SENTENCE: Final = re.compile(r"(?<=\.) (?=\S)")


def spelled(text: str, command: click.Command) -> str:
    """Return a message with options as a command spells them.

    A sentence of advice goes if it names an option that the command does not have; the first sentence, which says what
    is wrong, always stays.

    Parameters
    ----------
    text : str
    command : click.Command
        The one that says it.

    Examples
    --------
    >>> from store_core.command.messages import cat
    >>> spelled("a segment is gone. To continue without it: fail_on_data_loss=false (failOnDataLoss in Spark).", cat)
    'a segment is gone. To continue without it: --no-fail-on-data-loss.'
    """
    params = {param.name: param for param in command.params if param.name}
    problem, *advice = _SENTENCE.split(_OF_SPARK.sub("", text))
    kept = [problem, *(each for each in advice if _can_follow(each, params))]
    if len(kept) <= len(advice):
        kept[-1] = kept[-1].rstrip(".")
    return " ".join(_in_options(each, params) for each in kept)


def _can_follow(sentence: str, params: Params) -> bool:
    """Return whether a command has the options that a sentence names."""
    settings = {found[1] for found in _SETTING.finditer(sentence) if found[1] in _FIELDS}
    return settings <= params.keys() and set(_own_flags(sentence)) <= _flags(params)


def _own_flags(sentence: str) -> Iterator[str]:
    """Yield the options in a sentence, without those of a program that it says to run."""
    program = _PROGRAM.search(sentence)
    yield from _FLAG.findall(sentence if program is None else sentence[: program.start()])


def _flags(params: Params) -> set[str]:
    return {flag for param in params.values() for flag in (*param.opts, *param.secondary_opts)}


def _in_options(sentence: str, params: Params) -> str:
    sentence = _SETTING.sub(lambda found: _assigned(found, params), sentence)
    sentence = _NAMED.sub(lambda found: _shown(found[1], params, found[0]), sentence)
    sentence = _SUBJECT.sub(lambda found: _shown(found[1], params, found[1]), sentence)
    return _LIST.sub(lambda found: _listed(found[0].split(", "), params), sentence)


def _listed(names: Iterable[str], params: Params) -> str:
    """Return those options of a list that a command has."""
    return ", ".join(_shown(name, params, "") for name in names if name in params)


def _assigned(found: re.Match[str], params: Params) -> str:
    """Return ``name=value`` as a command has it."""
    name, value = found.groups()
    if name not in _FIELDS or name not in params:
        return found[0]
    param = params[name]
    if param.secondary_opts:
        return (param.secondary_opts if value == "false" else param.opts)[0]
    return f"{param.opts[0]} {value}"


def _shown(name: str, params: Params, otherwise: str) -> str:
    """Return the option of a name; something else if there is none."""
    param = params.get(name)
    return param.opts[0] if isinstance(param, click.Option) else otherwise
