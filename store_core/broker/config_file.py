# SPDX-License-Identifier: Apache-2.0
"""A broker's configuration files as it writes them: text, order of members, backup and version."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from store_core.files.file_system import FileSystem, OsFileSystem, write_file
from store_core.files.machine import Clock, SystemClock
from store_core.files.names import CONFIG_DIRECTORY
from store_core.format.java import hash_map_capacity, hash_map_order, spread_hash
from store_core.format.release import DEFAULT_RELEASE, Release, rules_of
from store_core.snapshot.config import DataVersion, backup_of, bytes_of, read_config
from store_core.store.message_store_config import snake_case

if TYPE_CHECKING:
    import os

    from store_core.format.release_rules import ReleaseRules
    from store_core.snapshot.config import SubscriptionGroupConfig, TopicConfig
    from store_core.snapshot.config_json import JsonKey, JsonObject, JsonValue

Key = TypeVar("Key", str, int)


def initial_capacity(size: int) -> int:
    """Return the number of buckets of ``new ConcurrentHashMap(size)``: the next power of two above 1.5 * `size`.

    >>> initial_capacity(32), initial_capacity(512), initial_capacity(1024)
    (64, 1024, 2048)
    """
    return 1 << (size + (size >> 1)).bit_length()


def concurrent_map_order(keys: Collection[Key], capacity: int) -> list[Key]:
    """Return distinct keys, given in insertion order, in the iteration order of the map.

    * `keys`: Java's ``String`` or ``Integer``.
    * `capacity`: Buckets of the empty map; it doubles when three quarters full.

    In Java a bucket of more than eight keys becomes a tree, or makes a small map double; that is not imitated.

    >>> concurrent_map_order([17, 3, 16, 1], 16)
    [16, 17, 1, 3]
    """
    buckets: dict[int, list[Key]] = {}
    for size, key in enumerate(keys, 1):
        buckets.setdefault(_spread(key) & (capacity - 1), []).append(key)
        if size >= capacity - capacity // 4:
            buckets = _transferred(buckets, capacity)
            capacity *= 2
    return [key for bucket in sorted(buckets) for key in buckets[bucket]]


def _transferred(buckets: dict[int, list[Key]], capacity: int) -> dict[int, list[Key]]:
    """Double a map (``ConcurrentHashMap.transfer``): of a bucket's keys only the last run keeps its order."""
    doubled: dict[int, list[Key]] = {}
    for bucket, keys in buckets.items():
        run = len(keys) - 1
        while run > 0 and not (_spread(keys[run - 1]) ^ _spread(keys[run])) & capacity:
            run -= 1
        doubled[bucket | (_spread(keys[run]) & capacity)] = keys[run:]
        for key in keys[:run]:
            doubled.setdefault(bucket | (_spread(key) & capacity), []).insert(0, key)
    return doubled


def _spread(key: str | int) -> int:
    if isinstance(key, str):
        return spread_hash(key)
    code = key & 0xFFFFFFFF
    return code ^ (code >> 16)


_ESCAPED: Final = re.compile(r'["\\\x00-\x1f\x7f-\x9f\u2028\u2029]')
_ESCAPED_BY_FEW: Final = re.compile(r'["\\\x00-\x1f]')
_SHORT_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def write_config(value: JsonValue, indent: int = 0, *, features: ReleaseRules | None = None) -> str:
    r"""Return the text of a value as a broker writes it: fastjson, or from 5.4 on fastjson 2, with ``PrettyFormat``.

    Members with a text key get a line each, indented by tabs; those with an integer key stay on their line, and the
    integer is bare. A list has its elements on separate lines, as a Java ``List``; a tuple on one, as a ``Set`` or an
    array of numbers. A member without a value (None) is left out. Members are in the order of the mapping.

    * `indent`: Tabs before the lines around it.
    * `features`: What the release does in another way: `ReleaseRules.breaks_lines_at_queue_ids`,
      `ReleaseRules.breaks_empty_tables`, `ReleaseRules.escapes_few_characters`. By default none of them.

    >>> write_config({"offsetTable": {"orders@billing": {0: 5, 1: 7}}})
    '{\n\t"offsetTable":{\n\t\t"orders@billing":{0:5,1:7\n\t\t}\n\t}\n}'
    """
    if isinstance(value, Mapping):
        return _write_object(value, indent, features)
    if isinstance(value, (list, tuple)):
        elements = [write_config(element, indent + 1, features=features) for element in value]
        is_set = isinstance(value, tuple) and not any(isinstance(element, int) for element in value)
        breaks_sets = features is not None and features.breaks_lines_at_queue_ids
        is_broken = breaks_sets if is_set else isinstance(value, list) and bool(value)
        line = "\n" + "\t" * (indent + 1) if is_broken else ""
        return f"[{line}{f',{line}'.join(elements)}{line[:-1]}]"
    if isinstance(value, str):
        if features is not None and features.escapes_few_characters:
            return '"' + _ESCAPED_BY_FEW.sub(lambda match: _escape(match).lower(), value) + '"'
        return '"' + _ESCAPED.sub(_escape, value) + '"'
    return json.dumps(value)


def _write_object(members: Mapping[JsonKey, JsonValue], indent: int, features: ReleaseRules | None) -> str:
    line = "\n" + "\t" * (indent + 1)
    breaks_lines = features is not None and features.breaks_lines_at_queue_ids
    parts = []
    for key, value in members.items():
        if value is not None:
            before = "" if isinstance(key, int) and not breaks_lines else line
            name = str(key) if isinstance(key, int) else write_config(key, features=features)
            parts.append(f"{before}{name}:{write_config(value, indent + 1, features=features)}")
    if not members and features is not None and features.breaks_empty_tables:
        parts.append(line)
    return "{" + ",".join(parts) + (line[:-1] if members or parts else "") + "}"


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _SHORT_ESCAPES.get(character) or f"\\u{ord(character):04X}"


def encode_members(config: TopicConfig | SubscriptionGroupConfig, names: frozenset[str]) -> JsonObject:
    """Return the named members of a configuration and those it does not know, sorted by name as fastjson does.

    Attributes are in the iteration order of Java's ``HashMap``.

    * `names`: Members of the file; each is the field of that name in snake case.
    """
    members: JsonObject = {name: getattr(config, snake_case(name)) for name in names}
    if "attributes" in names:
        keys = tuple(config.attributes)
        members["attributes"] = {key: config.attributes[key] for key in hash_map_order(keys, hash_map_capacity(keys))}
    members.update(config.others)
    return {name: members[name] for name in sorted(members, key=str)}


class ConfigManager(ABC):
    """Data kept in one JSON file of a broker (RocketMQ: ``ConfigManager``).

    **Loading.** The file is read; if it is missing, empty or broken, its backup ``.bak`` is read; with neither, the
    data is empty. RocketMQ also starts empty if the file is broken and there is no backup, and so forgets all offsets,
    or topics; here that is an error.

    **Persisting.** At every moment, whatever crashes, the file or its backup is whole. Steps: 1. write the new text to
    ``.tmp``, sync; 2. rename it over the file; 3. write the previous text of the file to ``.bak`` in the same way;
    4. sync the directory. (RocketMQ up to 5.0 deletes the file before it renames, 5.1 to 5.3 overwrite it.)

    Parameters
    ----------
    root : path-like
        The store's root; the file is below it in ``config``.
    file_system : FileSystem, optional
    clock : Clock, optional
    release : str
        Decides which members the file has, and how it is laid out.

    Attributes
    ----------
    name : str
        The file's name, the same for all files of a kind.
    path : Path
    notes : tuple of str
        Remarks on loading: that the backup was loaded, and why.
    is_loaded : bool
        Whether the file was read, or found to be missing.
    """

    name: ClassVar[str]

    def __init__(
        self,
        root: str | os.PathLike[str],
        file_system: FileSystem | None = None,
        clock: Clock | None = None,
        release: Release = DEFAULT_RELEASE,
    ) -> None:
        self._release: Release = release
        self._features = rules_of(release)
        self.path = Path(root) / CONFIG_DIRECTORY / self.name
        self._file_system = file_system or OsFileSystem()
        self._clock = clock or SystemClock()
        self._lock = RLock()
        self._begin()

    def _begin(self) -> None:
        """Begin with nothing loaded; called at the end of the constructor."""
        self.notes: tuple[str, ...] = ()
        self.is_loaded = False

    @property
    def backup_path(self) -> Path:
        """Path of the backup."""
        return backup_of(self.path)

    @abstractmethod
    def encode(self) -> JsonObject:
        """Return the contents of the file, with members in the order of the file."""

    @abstractmethod
    def decode(self, value: JsonObject, file: str) -> None:
        """Load the contents of a file into this object; on an error, nothing changes.

        Raises
        ------
        CorruptRecordError
            If the contents are not as required.
        """

    def load(self) -> None:
        """Read the file, or its backup.

        Raises
        ------
        CorruptRecordError
            If the file is broken, and the backup is missing, empty or broken, too.
        OSError
            As raised by the system.
        """
        with self._lock:
            self.notes = ()
            stored = partial(bytes_of, file_system=self._file_system)
            found = read_config(self.path, self.decode, stored, release=self._release)
            if found is not None:
                self.notes = (*found.notes, *self.notes)  # `decode` may have added some
            self.is_loaded = True

    def text(self) -> str:
        """Return the text of the file, as the release lays it out."""
        return write_config(self.encode(), features=self._features)

    def persist(self) -> None:
        """Write the file, and its previous text to the backup.

        Raises
        ------
        OSError
            As raised by the system; the file then still has its previous text, unless step 2 was reached.
        """
        with self._lock:
            self._file_system.make_directories(self.path.parent)
            before = bytes_of(self.path, self._file_system)
            self._replace(self.path, self.text().encode())
            if before is not None:
                self._replace(self.backup_path, before)
            self._file_system.sync_directory(self.path.parent)

    def _replace(self, path: Path, data: bytes) -> None:
        """Replace a file atomically."""
        temporary = path.with_name(path.name + ".tmp")
        write_file(temporary, data, self._file_system)
        self._file_system.rename(temporary, path)


class VersionedConfigManager(ConfigManager):
    """Data kept in one JSON file of a broker, with the version by which others detect changes.

    Parameters are those of `ConfigManager`.

    Attributes
    ----------
    data_version : DataVersion
    """

    def _begin(self) -> None:
        super()._begin()
        self.data_version = DataVersion(self._clock.now_ms())

    def _next_version(self) -> None:
        self.data_version = DataVersion(self._clock.now_ms(), self.data_version.counter + 1)

    def _load_version(self, version: DataVersion | None) -> None:
        """Take the version of a file; without one, the current version stays."""
        if version is not None:
            self.data_version = version

    def _encode_version(self) -> JsonObject:
        """Return the version as the release writes it: 4.x has no state version."""
        version = self.data_version
        state: JsonObject = {"stateVersion": version.state_version} if self._features.has_state_version else {}
        return {"counter": version.counter, **state, "timestamp": version.timestamp}
