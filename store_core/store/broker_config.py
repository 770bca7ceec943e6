# SPDX-License-Identifier: Apache-2.0
"""The part of a broker's own configuration that affects its store, and how values of such a file are read."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, get_args, get_type_hints

from store_core.errors import InvalidOptionError, StoreAccessError, StoreNotFoundError
from store_core.files.access import kind_of_file
from store_core.files.store_kind import path_exists
from store_core.format.words import hint_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from _typeshed import DataclassInstance


_BLANKS: Final = " \t\f"
_ENTRY: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties_file(data: bytes) -> dict[str, str]:
    r"""Parse a properties file as ``java.util.Properties.load`` does; for a repeated key the last value wins.

    Values keep trailing blanks, as in Java. The encoding is ISO 8859-1, with ``\uXXXX`` for other characters.

    Examples
    --------
    >>> parse_properties_file(b"# a broker\nflushDiskType = SYNC_FLUSH\ndeleteWhen:04;\\\n  05\n")
    {'flushDiskType': 'SYNC_FLUSH', 'deleteWhen': '04;05'}
    """
    entries = (_ENTRY.fullmatch(line) for line in _logical_lines(data.decode("latin-1")))
    return {_unescape(entry[1]): _unescape(entry[2]) for entry in entries if entry is not None}


def _logical_lines(text: str) -> Iterator[str]:
    """Join lines that end in an odd number of backslashes with the next; drop blank lines and comments."""
    joined = ""
    for line in re.split(r"\r\n|\r|\n", text):
        stripped = line.lstrip(_BLANKS)
        if not joined and (not stripped or stripped[0] in "#!"):
            continue
        joined += stripped
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            joined = joined[:-1]
            continue
        yield joined
        joined = ""
    if joined:
        yield joined


def _unescape(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _CONTROLS.get(code, code)

    return _ESCAPE.sub(replaced, text)


_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_BOOLEANS: Final = {"true": True, "false": False}
_I32_LIMIT: Final = 1 << 31


def snake_case(name: str) -> str:
    """Return a RocketMQ name in this package's spelling.

    Examples
    --------
    >>> snake_case("flushIntervalCommitLog"), snake_case("checkCRCOnRecover"), snake_case("brokerIP1")
    ('flush_interval_commit_log', 'check_crc_on_recover', 'broker_ip1')
    """
    parted = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name))
    return parted.lower()


def load_fields(
    kind: type[DataclassInstance], path: str | os.PathLike[str], aliases: Mapping[str, str]
) -> tuple[dict[str, object], tuple[str, ...]]:
    """Read the values of a dataclass from a broker's file.

    * `kind`: The dataclass. Keys that name its fields are read, in snake_case or RocketMQ's spelling.
    * `path`: A properties file, e.g. ``broker.conf``.
    * `aliases`: Other names of fields, in snake_case.

    Returns: Field to value.
    Returns: The keys that name no field, as spelled in the file.
    """
    if not path_exists(path):
        raise StoreNotFoundError(f"there is no configuration file {path}")
    if not Path(path).is_file():
        found = kind_of_file(Path(path).stat().st_mode)
        raise StoreAccessError(
            f"{path}: expected a configuration file, found {found}. Give a file, such as broker.conf"
        )
    hints = get_type_hints(kind)
    values: dict[str, object] = {}
    others = []
    for key, text in parse_properties_file(Path(path).read_bytes()).items():
        name = snake_case(key)
        name = aliases.get(name, name)
        if name in hints:
            values[name] = _parse(text.strip(), hints[name], f"{path}: {key}")
        else:
            others.append(key)
    return values, tuple(others)


def _parse(text: str, hint: object, where: str) -> object:
    """Convert text from a file to a field's type; `check_fields` checks the value."""
    kinds = get_args(hint) or (hint,)
    if bool in kinds:
        if text.lower() not in _BOOLEANS:
            raise InvalidOptionError(f"{where} must be true or false, found {text!r}")
        return _BOOLEANS[text.lower()]
    if int in kinds:
        if not _INTEGER.fullmatch(text):
            raise InvalidOptionError(f"{where} must be an integer, found {text!r}")
        return int(text)
    choices = [choice for choice in kinds if isinstance(choice, str)]
    if choices and text not in choices:
        raise InvalidOptionError(f"{where} must be one of {', '.join(choices)}; found {text!r}{hint_of(text, choices)}")
    return text


def check_fields(config: DataclassInstance) -> None:
    """Check that every field matches its annotation, and that integers fit into Java's."""
    hints = get_type_hints(type(config))
    for field in fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        kinds = get_args(hint) or (hint,)
        choices = [choice for choice in kinds if isinstance(choice, str)]
        where = f"{type(config).__name__}.{field.name}"
        if choices and value not in choices:
            raise InvalidOptionError(
                f"{where} must be one of {', '.join(choices)}; found {value!r}{hint_of(value, choices)}"
            )
        plain = tuple(kind for kind in kinds if isinstance(kind, type))
        if plain and not _is_one_of(value, plain):
            expected = " or ".join(kind.__name__ for kind in plain)
            raise InvalidOptionError(f"{where} must be {expected}, found {value!r}")
        if isinstance(value, int) and not -_I32_LIMIT <= value < _I32_LIMIT:
            raise InvalidOptionError(f"{where} must fit into 32 bits, found {value}")


def _is_one_of(value: object, kinds: tuple[type, ...]) -> bool:
    """Return what ``isinstance`` does, except that a bool is not an int."""
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Configuration of the broker of a store (RocketMQ: ``BrokerConfig``), immutable.

    Names and defaults are those of RocketMQ 5.3.3; intervals in ms, unless said otherwise.

    Attributes
    ----------
    broker_ip1, listen_port : str and int
        The broker's address: the store host of messages without one.
    broker_permission : int
        Permissions for all topics, as a sum: 4 to read, 2 to write (``PermName``).
    auto_create_subscription_group : bool
        Whether the first pull of an unknown group creates it.
    filter_data_clean_time_span : int
        ms.
    flush_consumer_offset_interval : int
        ms between writes of the committed offsets, see `store_core.broker.FlushConsumerOffsetService`.
    """

    broker_name: str = "DEFAULT_BROKER"
    broker_id: int = 0
    broker_ip1: str = "127.0.0.1"
    listen_port: int = 10911
    broker_permission: int = 6
    auto_create_subscription_group: bool = True
    enable_controller_mode: bool = False
    enable_slave_acting_master: bool = False
    long_polling_enable: bool = True
    short_polling_time_mills: int = 1000
    slave_read_enable: bool = False
    enable_property_filter: bool = False
    enable_calc_filter_bit_map: bool = False
    filter_support_retry: bool = False
    expect_consumer_num_use_filter: int = 32
    max_error_rate_of_bloom_filter: int = 20
    filter_data_clean_time_span: int = 24 * 3600 * 1000
    flush_consumer_offset_interval: int = 5000
    use_server_side_reset_offset: bool = True

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def from_properties(cls, path: str | os.PathLike[str]) -> Self:
        """Read a broker's configuration file; `MessageStoreConfig.from_properties` reads the store's part of it."""
        values: dict[str, Any] = load_fields(cls, path, {})[0]
        return cls(**values)

    @property
    def store_host(self) -> tuple[str, int]:
        """Address and port used as the store host of records."""
        return self.broker_ip1, self.listen_port
