# SPDX-License-Identifier: Apache-2.0
"""The write options: one table for the parser, its errors and ``docs/options.md``."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, TypeVar, cast

from store_core.broker.topic_kind import send_refusal
from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.files.store_path import without_scheme
from store_core.format.columnar.input_columns import parse_host
from store_core.format.record.encode import pack_host
from store_core.format.release import DEFAULT_RELEASE, RELEASES, Release, release_hint, rules_of, shown_releases
from store_core.format.words import hint_of
from store_core.store.read.option_table import Option, unknown_option
from store_core.store.store_layout import config_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.store.message_store_config import MessageStoreConfig
    from store_core.store.sink.commit import Rebuild


BadRows: TypeAlias = Literal["fail", "skip"]
NullBody: TypeAlias = Literal["fail", "empty"]

WRITE_OPTIONS: Final = (
    Option(
        "path",
        "(required)",
        "store",
        "root of the store, which is created where nothing or an empty directory is; `save(path)` sets it",
    ),
    Option("release", DEFAULT_RELEASE, "store", f"RocketMQ that is to serve the store: {shown_releases()}"),
    Option(
        "config",
        "(none)",
        "store",
        "the broker's configuration file: sizes, delays, and where the log is (`storePathCommitLog`). Options that are "
        "given come first",
    ),
    Option(
        "storePathCommitLog",
        "(the store's own)",
        "store",
        "which log is written, where the store has one and its configuration names another: the directory, or several, "
        "separated by commas. Without it such a store is not written",
    ),
    Option("topic", "(the column)", "rows", "all messages go to this topic, whatever column `topic` says"),
    Option(
        "queueNums", "4", "rows", "number of queues per topic over which rows without `queue_id` are spread, in turn"
    ),
    Option(
        "shardingKey",
        "(in turns)",
        "rows",
        "column whose text determines the queue of rows without `queue_id`, as `SelectMessageQueueByHash` "
        "does; it need not be a column of a message",
    ),
    Option("storeHost", "127.0.0.1:10911", "rows", "broker's `ip:port`, for rows without one in column `store_host`"),
    Option("bornHost", "127.0.0.1:0", "rows", "producer's `ip:port`, for rows without one in column `born_host`"),
    Option(
        "messageDelayLevel",
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "rows",
        "delays of the levels in `delay_level`, as configured in the broker",
    ),
    Option(
        "enabledAppendPropCRC",
        "false",
        "rows",
        "end each record with its checksum as a property, for a broker of RocketMQ 5 that has this enabled",
    ),
    Option(
        "maxMessageSize",
        "4m",
        "rows",
        "maximum body size, as configured in the broker; with release 4.3: maximum record size",
    ),
    Option(
        "preserveStoreTimestamp",
        "false",
        "rows",
        "for messages of another store: keep the times in column `store_timestamp`, and make the same records, of "
        "any topic. Without it that column is rejected, messages get the time at which they are appended, a "
        "`delay_level` applies, and topics are those to which clients can send",
    ),
    Option(
        "badRows",
        "fail",
        "rows",
        "`skip` leaves out rows that RocketMQ would reject, and lists them with reasons in `commitlog-sink/refused`",
    ),
    Option("nullBody", "fail", "rows", "`empty` stores a null body as an empty one; a broker takes no null body"),
    Option("mappedFileSizeCommitLog", "1g", "store", "size of a new store's segments; an existing one keeps its own"),
    Option("mappedFileSizeConsumeQueue", "6000000", "store", "the same for the files of its queues"),
    Option("maxHashSlotNum", "5000000", "store", "the same for the slots of its index files"),
    Option("maxIndexNum", "20000000", "store", "the same for the entries of its index files"),
    Option(
        "rebuild",
        "all",
        "commit",
        "`all` brings queues and index up to date, `queues` only the queues: the rows' keys are then in the index only "
        "when `commitlog rebuild index` has made it again; `none` leaves that to the next "
        "program that opens the store, and leaves a file `abort`, so that a broker of any release does it",
    ),
    Option("overwriteStore", "false", "commit", 'must be `true` for `mode("overwrite")`: it replaces the whole store'),
    Option(
        "stagingDir",
        "(in the store)",
        "commit",
        "where tasks leave their records until the commit; driver and tasks must see it, as they must see the store",
    ),
    Option(
        "commitId",
        "(none)",
        "commit",
        "name of the job: a job that is already in the store is not appended again. Not with `writeStream`, where the "
        "query's id and the batch's number do the same",
    ),
    Option(
        "dryRun", "false", "commit", "check and encode all rows, count them, and append nothing; not with `writeStream`"
    ),
    Option(
        "report", "(none)", "commit", "file on the driver's machine to which a JSON report of each commit is written"
    ),
)

_DEFAULTS: Final = {option.name.lower(): option.default for option in WRITE_OPTIONS}
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
_SIZE: Final = re.compile(r"(\d{1,18})([kmg]?)b?", re.IGNORECASE)
_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30}
_SIZES: Final = {
    "mappedFileSizeCommitLog": "mapped_file_size_commit_log",
    "mappedFileSizeConsumeQueue": "mapped_file_size_consume_queue",
    "maxHashSlotNum": "max_hash_slot_num",
    "maxIndexNum": "max_index_num",
}
_INT: Final = 2**31 - 1
T = TypeVar("T", bound=str)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The parsed options of one write; can be pickled."""

    root: Path  # the store root
    config: MessageStoreConfig  # from the options and the configuration alone; an existing store may have other sizes
    topic: str | None
    queue_nums: int
    sharding_key: str | None
    store_host: tuple[str, int]
    born_host: tuple[str, int]
    preserve_store_timestamp: bool
    bad_rows: BadRows
    null_body: NullBody
    rebuild: Rebuild
    overwrite_store: bool
    staging: Path | None
    commit_id: str | None
    dry_run: bool
    report: Path | None

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> Self:
        """Parse the options that Spark passes to a data source."""
        given = {name.lower(): value for name, value in options.items() if name.lower() not in _OF_SPARK}
        for name in sorted(given.keys() - _DEFAULTS.keys()):
            if name.startswith("storage."):
                raise UnsupportedStoreError(f"option {name} configures an object store; stores are written locally")
            raise unknown_option(name, [option.name for option in WRITE_OPTIONS], "writing format 'commitlog'")
        text = _DEFAULTS | {name: value.strip() for name, value in given.items()}
        release = _one_of("release", text["release"], *RELEASES)
        return cls(
            root=_root(given.get("path")),
            config=_config(release, text, given),
            topic=_topic(_not_empty("topic", given.get("topic")), release),
            queue_nums=_queue_nums(text["queuenums"]),
            sharding_key=_not_empty("shardingKey", given.get("shardingkey")),
            store_host=_host("storeHost", text["storehost"], release),
            born_host=_host("bornHost", text["bornhost"], release),
            preserve_store_timestamp=_boolean("preserveStoreTimestamp", text["preservestoretimestamp"]),
            bad_rows=_one_of("badRows", text["badrows"], "fail", "skip"),
            null_body=_one_of("nullBody", text["nullbody"], "fail", "empty"),
            rebuild=_one_of("rebuild", text["rebuild"], "all", "queues", "none"),
            overwrite_store=_boolean("overwriteStore", text["overwritestore"]),
            staging=_path("stagingDir", given["stagingdir"]) if "stagingdir" in given else None,
            commit_id=_not_empty("commitId", given.get("commitid")),
            dry_run=_boolean("dryRun", text["dryrun"]),
            report=_path("report", given["report"]) if "report" in given else None,
        )


def _config(release: Release, text: Mapping[str, str], given: Mapping[str, str]) -> MessageStoreConfig:
    """Return the broker's configuration with the options that are given, or else all of the options."""
    values: dict[str, Any] = {
        field: _size(name, text[name.lower()]) for name, field in _SIZES.items() if name.lower() in given
    }
    asked = given if "config" in given else _DEFAULTS
    if "messagedelaylevel" in asked:
        values["message_delay_level"] = text["messagedelaylevel"]
    if "maxmessagesize" in asked:
        values["max_message_size"] = _size("maxMessageSize", text["maxmessagesize"])
    if "enabledappendpropcrc" in asked:
        values["enabled_append_prop_crc"] = _property_crc(text["enabledappendpropcrc"], release)
    return replace(config_of(given.get("config"), given.get("storepathcommitlog"), release), **values)


def _property_crc(text: str, release: Release) -> bool:
    is_on = _boolean("enabledAppendPropCRC", text)
    if is_on and not rules_of(release).has_property_crc:
        raise _refuse("enabledAppendPropCRC", f"false with release={release}, which has no such checksum", text)
    return is_on


def _refuse(name: str, expected: str, found: str, hint: str = "") -> InvalidOptionError:
    return InvalidOptionError(f"option {name}: expected {expected}, found {found!r}{hint}")


def _path(name: str, text: str | None) -> Path:
    if not text:
        raise InvalidOptionError(
            f"option {name}: no path is given: .save('/path/to/store') of a df.write, .start('/path/to/store') of a "
            f"df.writeStream. Tables that were made with CREATE TABLE have lost theirs"
        )
    local = None
    with suppress(UnsupportedStoreError):  # of another scheme, also as hdfs:/path
        local = without_scheme(text)
    if local is None or "://" in local:
        raise UnsupportedStoreError(
            f"option {name}: {text} is not on a local or mounted file system, where stores live. "
            f"Nothing was written. Write the store on a local disk, and copy it there"
        )
    return Path(local.removeprefix("file:")).absolute()


def _root(text: str | None) -> Path:
    """Return the only store that is written; a new one is not made where a reader would look for several."""
    root = _path("path", text)
    if ("," in str(root) or has_magic(str(root))) and not root.exists():
        raise _refuse(
            "path",
            "the root of one store, as messages are appended to one",
            str(text),
            ", which stands for several. Write to each by itself the messages that it is to have",
        )
    return root


def _not_empty(name: str, text: str | None) -> str | None:
    if text is not None and not text.strip():
        raise _refuse(name, "some text", text)
    return text


def _topic(text: str | None, release: Release) -> str | None:
    refusal = None if text is None else send_refusal(text, release)
    if refusal is not None:
        raise InvalidOptionError(f"option topic {text!r}: {refusal}")
    return text


def _one_of(name: str, text: str, *allowed: T) -> T:
    for value in allowed:
        if text.lower() == value:
            return value
    hint = release_hint(text) if name == "release" else hint_of(text, allowed)
    raise _refuse(name, f"one of {', '.join(allowed)}", text, hint)


def _boolean(name: str, text: str) -> bool:
    return _one_of(name, text, "true", "false") == "true"


def _queue_nums(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _INT):
        raise _refuse("queueNums", f"a number from 1 to {_INT}", text)
    return int(text)


def _size(name: str, text: str) -> int:
    match = _SIZE.fullmatch(text)
    size = int(match[1]) << _SHIFTS[match[2].lower()] if match else 0
    if not 1 <= size <= _INT:
        raise _refuse(name, f"a number of 1 to {_INT}, such as 1048576 or 1m", text)
    return size


def _host(name: str, text: str, release: str) -> tuple[str, int]:
    try:
        host = parse_host(text)
        pack_host(*host, cast("Release", release))
    except (InvalidOptionError, ValueError, OSError) as error:
        raise InvalidOptionError(f"option {name}: {error}") from error
    return host
