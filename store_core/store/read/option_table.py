# SPDX-License-Identifier: Apache-2.0
"""What an option is, and those of reads: one table for the source, the command, errors and ``docs/options.md``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from operator import index
from typing import TYPE_CHECKING, Final, NoReturn, SupportsIndex

from store_core.errors import InvalidOptionError
from store_core.format.release import DEFAULT_RELEASE, shown_releases
from store_core.format.words import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Option:
    """One option of ``format("commitlog")``, for reading or for writing; `commitlog` has those for reading, too."""

    name: str  # as users write it; Spark ignores case
    default: str  # text of the default value, or, in parentheses, what happens without the option
    scope: str
    """What the option is about. Reading: ``what`` is opened, which ``rows`` and ``columns`` are returned, what
    ``damage`` does, ``speed``. Writing: ``rows``, ``store``, ``commit``."""
    meaning: str  # for users, in Markdown

    @property
    def field(self) -> str:
        """Name of the `ReadOptions.parse` argument for this option; not for `path`, `paths` and `view`."""
        return re.sub(r"([A-Z])", r"_\1", self.name).lower()


class NamedBy(Enum):
    """What a message is named by, where one is asked for; the values are options of commands."""

    KEY = "key"
    ID = "id"
    POSITION = "position"


READ_OPTIONS: Final = (
    Option(
        "path",
        "(required)",
        "what",
        "the store: its root, its `commitlog` directory, one segment file, or an archive of a store: `.tar`, `.tar.gz` "
        "(`.tgz`), `.tar.zst` or `.tar.lz4`. `load(path)` sets it; without it, it is `storePathRootDir` of `config`",
    ),
    Option(
        "paths",
        "(none)",
        "what",
        "several paths, of several stores or of one log, as a JSON list. `load([path, ...])` sets it",
    ),
    Option(
        "view",
        "messages",
        "what",
        "what a row is: a message, or what is beside the log: `consumequeue`, `index`, `segments`, `topics`, "
        "`consumer_offsets`, `subscription_groups`, `delay_offsets`, `checkpoint`, `timerlog`, `timerwheel` or "
        "`rocksdbstore`. [Views](views.md) have their own columns, and take some of these options",
    ),
    Option(
        "release",
        DEFAULT_RELEASE,
        "what",
        f"the RocketMQ that serves the store: {shown_releases()}; `4.3` stands for all up to 4.9.0. They read some "
        "properties differently; `commitlog check` tells which one served a store",
    ),
    Option(
        "storage",
        "(the environment's)",
        "what",
        "settings of the object store or file system, if the path is a URL such as `s3://bucket/store`. In Spark each "
        "is an option of its own, such as `storage.region`; elsewhere `region=eu-west-1,scheme=https` or JSON. The "
        "names are those of `pyarrow.fs`; what is not set comes from the environment. Values are never shown",
    ),
    Option(
        "config",
        "(none)",
        "what",
        "the broker's configuration file, such as `broker.conf`. If the path is a root without a log of its own, the "
        "log is read where this says (`storePathCommitLog`, which may name several directories, "
        "`readOnlyCommitLogStorePaths`, `storePathDLedgerCommitLog`); a root that has one is read with it, with a "
        "note if the file names another",
    ),
    Option(
        "storePathCommitLog",
        "(the root's own, or the configuration's)",
        "what",
        "which log is meant, where a root has one and its configuration names another: the directory, or several, "
        "separated by commas",
    ),
    Option(
        "topic", "(all)", "rows", "topics, separated by commas, or a list of them. Not together with `topicsPattern`"
    ),
    Option("topicsPattern", "(all)", "rows", "a Python regular expression that must match the whole topic"),
    Option("queueId", "(all)", "rows", "queue ids, separated by commas, or a list of them"),
    Option(
        "tag",
        "(all)",
        "rows",
        "tags, written as consumers write them: `TagA \\|\\| TagB`, or `*` for all messages",
    ),
    Option(
        "key",
        "(all)",
        "rows",
        "a key: one of the words in property KEYS, or the message's id in property UNIQ_KEY, as of `uniqueKey`",
    ),
    Option(
        "uniqueKey",
        "(all)",
        "rows",
        "the id that the producer's client gave the message: property UNIQ_KEY alone, the first or the last",
    ),
    Option(
        "msgId",
        "(all)",
        "rows",
        "an offset message id: 32 hexadecimal digits, or 56 with an IPv6 host, as in column `msg_id`. Its record is "
        "read where the id says",
    ),
    Option("physicalOffset", "(all)", "rows", "the position of one record in the log, in bytes"),
    Option(
        "filter",
        "(none)",
        "rows",
        "a consumer's filter: the rows are the messages that RocketMQ delivers to such a consumer. Either tags, or an "
        "SQL92 expression on the properties such as `a > 5 AND TAGS IS NOT NULL`",
    ),
    Option(
        "filterType",
        "TAG",
        "rows",
        "the language of `filter`: `TAG` or `SQL92`. A message on which an expression fails does not match. For "
        "example, `price < 20` fails on the property `19.99`, because RocketMQ compares a whole number with whole "
        "numbers only; write `price < 20.0`",
    ),
    Option(
        "startingOffsets",
        "earliest",
        "rows",
        'where to start: a physical offset, or queue offsets as JSON such as `{"topic":{"0":12}}`, in which -2 is the '
        "earliest; queues that it does not name start there, too",
    ),
    Option("endingOffsets", "latest", "rows", "where to stop, in the same forms. The end itself is not read"),
    Option(
        "startingTimestamp",
        "(none)",
        "rows",
        "read messages stored at this time or later: ms since 1970, ISO 8601 such as `2024-05-01T12:00:00+08:00`, "
        "digits such as `20240501120000`, or `-15m` or `-2d`: so long (s, m, h, d, w) before the store time of the "
        "last message that the log has when the read begins. A time without an offset is in `timeZone`. This option "
        "takes precedence over `startingOffsets`",
    ),
    Option(
        "endingTimestamp",
        "(none)",
        "rows",
        "read messages stored before this time, in the same forms. This option takes precedence over `endingOffsets`",
    ),
    Option(
        "asOf",
        "(none)",
        "rows",
        "read the log as it was when the broker's clock first reached this time, in the same forms: the messages "
        "before the first one, in the order of the log, that was stored then or later. Other options narrow that "
        "further",
    ),
    Option(
        "timeZone",
        "(the session's)",
        "rows",
        "the time zone of `startingTimestamp`, `endingTimestamp` and `asOf` if they have no offset: a region such as "
        "`Asia/Shanghai`, an offset such as `+08:00`, or `local`, this machine's. For the first two of a batch the "
        "default is `spark.sql.session.timeZone`, if that is set; for `asOf`, for streams and without Spark a "
        "time without an offset is rejected",
    ),
    Option(
        "columns",
        "(the default ones)",
        "columns",
        "columns, separated by commas. Only these are decoded. In Spark `.schema(...)` does the same",
    ),
    Option(
        "decompress",
        "false",
        "columns",
        "`true` decompresses bodies, up to 64 MiB each, as each record says and RocketMQ's consumers do. A body that "
        "can't be decompressed is an error with `FAILFAST`; `DROPMALFORMED` leaves its record out, and `PERMISSIVE` "
        "makes it null: `_corrupt_record` says why. RocketMQ's checksums do not cover the bits that name the "
        "compression, unless properties have checksums",
    ),
    Option(
        "mode",
        "FAILFAST",
        "damage",
        "what to do at damage. `FAILFAST` stops with an error. `DROPMALFORMED` continues at the next sound record. "
        "`PERMISSIVE` does too, and adds a row for each damaged range, with its bytes in the column `_corrupt_record`, "
        "which is then read by default",
    ),
    Option(
        "verifyCrc",
        "true",
        "damage",
        "check each body that is read against its checksum, and each record that carries a checksum over all of it "
        "(`__CRC32#`, of brokers with `enabledAppendPropCRC`), unless only columns are read that it does not cover",
    ),
    Option(
        "failOnDataLoss", "true", "damage", "`false` continues if a segment is missing, or is deleted during the read"
    ),
    Option(
        "useConsumeQueues",
        "auto",
        "damage",
        "`auto` reads `topic`, `topicsPattern`, `queueId` and positions by the consume queues if that is faster. Each "
        "record that they lead to is checked; that they lead to all of them is what `commitlog check` proves. `never` "
        "scans the log, whatever the queues hold",
    ),
    Option(
        "useIndexFiles",
        "auto",
        "damage",
        "the same for `key` and `uniqueKey` by the index files",
    ),
    Option(
        "maxPartitionBytes",
        "(a segment)",
        "speed",
        "split segments into partitions of at most this size, at record starts. `128m` is 128 MiB",
    ),
    Option(
        "minPartitions", "(one per segment)", "speed", "split segments until there are at least this many partitions"
    ),
    Option("maxRecordsPerBatch", "16384", "speed", "maximum number of rows in one Arrow batch"),
)


_ITEM: Final = r"""(?:'[^'\\]*'|"[^"\\]*"|[+-]?[0-9]+)"""
_LIST: Final = re.compile(rf"[\[(]\s*(?:{_ITEM}\s*(?:,\s*{_ITEM}\s*)*,?\s*)?[\])]")
"""A list or tuple as Python prints it, or a list in JSON, of numbers or of texts without escapes."""

_COLLECTION: Final = re.compile(r"(?:\w+\()?[\[({].*['\"].*[\])}]\)?", re.DOTALL)
"""Another collection of texts, as Python prints it."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")


def shown_option(name: str) -> str:
    """Return an option's name for a message: the one in the table of options, from which all others follow."""
    head, *tail = name.split("_")
    return f"option {head}{''.join(part.capitalize() for part in tail)}"


def refuse_value(name: str, value: object, expected: str, hint: str = "") -> NoReturn:
    """Raise the error for a value that an option does not accept."""
    raise InvalidOptionError(f"{shown_option(name)}: expected {expected}, found {value!r}{hint}")


def listed(name: str, value: object, expected: str) -> object:
    """Return the list whose text an option has; any other value as it is.

    Spark makes text of all values, of a list in Python that which Python prints.

    * `expected`: What the list would have.
    """
    text = value.strip() if isinstance(value, str) else ""
    if _LIST.fullmatch(text) is not None:
        return [item.strip("'\"") for item in re.findall(_ITEM, text)]
    if _COLLECTION.fullmatch(text) is not None:
        refuse_value(name, value, f"{expected}, or a list of them")
    return value


def refuse_list(name: str, value: object, expected: str) -> None:
    """Refuse the text that Python prints for a list of texts, where one value is expected."""
    if isinstance(value, str) and "'" in value and _LIST.fullmatch(value.strip()) is not None:
        refuse_value(name, value, f"{expected}, not a list")


def is_integer(text: str) -> bool:
    """Return whether a text is an integer."""
    return _INTEGER.fullmatch(text.strip()) is not None


def parse_integer(name: str, value: object, low: int, high: int, expected: str) -> int:
    """Return an integer from text, or from anything usable as a Python index, such as numpy's integers."""
    number = int(value.strip()) if isinstance(value, str) and is_integer(value) else value
    found = _as_index(number)
    if found is None or not low <= found <= high:
        refuse_value(name, value, expected)
    return found


def _as_index(value: object) -> int | None:
    if not isinstance(value, SupportsIndex) or isinstance(value, bool):
        return None
    try:
        return index(value)
    except TypeError:  # an array of numpy has the method, whatever its size
        return None


def unknown_option(name: str, names: Sequence[str], of: str) -> InvalidOptionError:
    """Return the error for an option that has none of these names; it suggests the nearest, or lists all."""
    known = did_you_mean(name, names) or f"the options are {', '.join(names)}"
    return InvalidOptionError(f"unknown option {name!r} of {of}; {known}")


def pairs_of(name: str, texts: Sequence[str]) -> dict[str, str]:
    """Return what an option was given as ``NAME=VALUE``, by these names."""
    pairs = [text.partition("=") for text in texts]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise InvalidOptionError(f"{name}: expected NAME=VALUE, found {key!r}")
    return {key: value for key, _, value in pairs}
