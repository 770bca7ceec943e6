# SPDX-License-Identifier: Apache-2.0
"""The storage that a URL names, such as S3: credentials and other settings, repeated attempts, bytes moved."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

import pyarrow as pa

from store_core.errors import InvalidOptionError, StoreAccessError, StoreError, UnsupportedStoreError
from store_core.files.machine import Clock, SystemClock
from store_core.files.names import SCHEME
from store_core.format.words import did_you_mean

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    _T = TypeVar("_T")


class Moved(NamedTuple):
    """Requests to a storage, and the bytes of files that they bring.

    Attributes
    ----------
    requests : int
        As this package makes them; a client may make more, as when one has to be repeated.
    bytes : int
    """

    requests: int = 0
    bytes: int = 0

    def since(self, before: Moved) -> Moved:
        """Return what came after an earlier count."""
        return Moved(self.requests - before.requests, self.bytes - before.bytes)

    def and_also(self, other: Moved) -> Moved:
        """Return both together."""
        return Moved(self.requests + other.requests, self.bytes + other.bytes)

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.bytes:,} bytes in {self.requests:,} request{'s' * (self.requests != 1)}"


NOTHING: Final = Moved()


class Traffic:
    """Counts what threads of this process ask of one storage; a pickle begins at zero."""

    __slots__ = ("_lock", "moved")

    def __init__(self) -> None:
        self.moved = Moved()
        self._lock = Lock()

    def count(self, requests: int, size: int = 0) -> None:
        """Add requests that bring some bytes."""
        with self._lock:
            self.moved = self.moved.and_also(Moved(requests, size))

    def __reduce__(self) -> tuple[type[Traffic], tuple[()]]:
        """Pickle without what was counted here."""
        return Traffic, ()


SETTING_PREFIX: Final = "storage."
"""What the names of these settings begin with in Spark and on the command line."""

_HIDDEN: Final = "***"
_OPEN: Final = frozenset({"region", "endpoint_override", "scheme", "anonymous", "project_id"})
"""Settings whose values are no secrets, and needed to understand an error."""

_SHORTEST_SECRET: Final = 4
"""Values below this many characters are not searched for in errors: they are parts of ordinary words."""

_NUMBER: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_TRUTHS: Final = {"true": True, "false": False}
_EXPECTED: Final = "option storage: expected settings such as region=eu-west-1,scheme=https, or a JSON object"


def _settings_in(text: str) -> object:
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise InvalidOptionError(f"{_EXPECTED}; this JSON can't be parsed") from None
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(equals for _, equals, _ in pairs):
        raise InvalidOptionError(f"{_EXPECTED}; a setting has no '='")
    found = {setting.strip(): value.strip() for setting, _, value in pairs}
    if len(found) < len(pairs):
        raise InvalidOptionError(f"{_EXPECTED}; a setting is there twice")
    return found


@dataclass(frozen=True, slots=True, repr=False)
class StorageSettings:
    """Settings by name; hashable, and picklable for tasks. Neither ``repr`` nor an error shows a value."""

    values: tuple[tuple[str, str], ...] = ()
    """In the order of their names, which are those of the file system's own arguments, in lower case."""

    @classmethod
    def of(cls, settings: object) -> Self:
        """Check settings as given in Python, as text, or by options without their prefix; errors never show them."""
        if isinstance(settings, cls):
            return settings
        if isinstance(settings, str):
            settings = _settings_in(settings)
        if not isinstance(settings, Mapping):
            raise InvalidOptionError(_EXPECTED)
        return cls(tuple(sorted((_name(name), _text(name, value)) for name, value in settings.items())))

    def __repr__(self) -> str:
        """Return the names without the values."""
        return f"StorageSettings({', '.join(name for name, _ in self.values)})"

    def __bool__(self) -> bool:
        """Return whether there is any setting."""
        return bool(self.values)

    def arguments(self, types: Mapping[str, type]) -> dict[str, object]:
        """Return the settings as arguments of a file system.

        * `types`: The names that the file system knows, with ``str``, ``bool`` or ``float``.
        """
        self.check_names(types)
        return {name: _typed(name, text, types[name]) for name, text in self.values}

    def check_names(self, known: Iterable[str]) -> None:
        """Refuse settings that a file system does not know."""
        names = list(known)
        for name, _ in self.values:
            if name not in names:
                hint = did_you_mean(name, names) or f"the settings are {', '.join(names) or 'none'}"
                raise InvalidOptionError(f"unknown setting {SETTING_PREFIX}{name}; {hint}")

    def hidden_in(self, text: str) -> str:
        """Return a text, such as another library's error, without the values of secret settings."""
        for name, value in self.values:
            if name not in _OPEN and len(value) >= _SHORTEST_SECRET:
                text = text.replace(value, _HIDDEN)
        return text


NO_SETTINGS: Final = StorageSettings()
"""What a storage is opened with if nothing is set: the environment and its usual chain of credentials."""


def _name(name: object) -> str:
    if not isinstance(name, str) or not name.isidentifier():
        raise InvalidOptionError(f"storage: expected names of settings such as 'region', found {name!r}")
    return name.lower()


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise InvalidOptionError(f"{SETTING_PREFIX}{name}: expected text, found a value of type {type(value).__name__}")


def _typed(name: str, text: str, wanted: type) -> object:
    if wanted is bool:
        if text.lower() not in _TRUTHS:
            raise InvalidOptionError(f"{SETTING_PREFIX}{name}: expected true or false")
        return _TRUTHS[text.lower()]
    if wanted is float:
        if not _NUMBER.fullmatch(text):
            raise InvalidOptionError(f"{SETTING_PREFIX}{name}: expected a number of seconds")
        return float(text)
    return text


_log: Final = logging.getLogger("store_core")

_MOST: Final = 8
"""Attempts. The client of S3 makes none of its own, so that each is counted and seen."""

_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
"""Seconds before the second attempt, doubled each time, and the bound of that: 16 seconds in all."""

_HINTS: Final = {
    "HTTP status 301": "The bucket is in another region: give it by the setting region.",
    "wrong version number": "The server does not speak TLS there: give the setting scheme=http, or its other port.",
}
"""What helps where another attempt does not, by what a client says."""

_DENIED: Final = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|INVALID_CLIENT_TOKEN_ID|UNRECOGNIZED_CLIENT|NO_SUCH_BUCKET"
    rf"|HTTP status 40[0-57]|{'|'.join(_HINTS)}"
    r"|PERMISSION_DENIED|UNAUTHENTICATED|AuthenticationFailed|AuthorizationFailure"
)
"""What clients say where the same request can't have another answer."""

_GONE: Final = re.compile(r"RESOURCE_NOT_FOUND|NO_SUCH_KEY|BlobNotFound|HTTP status 404")


class Attempts(NamedTuple):
    """How often something is tried, and what errors say of it."""

    url: str  # what is asked for; it holds no setting
    settings: StorageSettings  # their values are hidden in the errors of clients
    clock: Clock = SystemClock()  # pauses between attempts
    seconds: float = inf  # how long after the first attempt another may begin, for what nobody waits longer for

    def make(self, what: str, act: Callable[[], _T]) -> _T:
        """Do something until it works.

        * `what`: Completes "could not".
        * `act`: May raise an error of this package, which is passed on, or one of the storage's client.
        """
        pause, end = _FIRST_PAUSE, self.clock.monotonic() + self.seconds
        for attempt in range(1, _MOST + 1):
            try:
                return act()
            except (StoreError, FileNotFoundError, PermissionError):
                raise
            except (OSError, pa.ArrowException) as error:
                text = self.settings.hidden_in(str(error))
                if attempt == _MOST or self.clock.monotonic() > end or _DENIED.search(text):
                    raise self._error(what, text, attempt) from None
                if _GONE.search(text):
                    raise FileNotFoundError(text) from None
                _log.warning("%s: could not %s: %s; attempt %d of %d follows", self.url, what, text, attempt + 1, _MOST)
                self.clock.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        raise AssertionError("unreachable")

    def _error(self, what: str, text: str, attempt: int) -> StoreAccessError:
        often = f", after {attempt} attempts" if attempt > 1 else ""
        hint = next((f" {way_on}" for sign, way_on in _HINTS.items() if sign in text), "")
        return StoreAccessError(
            f"{self.url}: could not {what}{often}: {text.rstrip('. ')}.{hint} Check the URL, the settings "
            f"{SETTING_PREFIX}* and the environment's credentials, or try again when the storage answers; nothing was "
            f"changed"
        )


_URL: Final = re.compile(rf"({SCHEME})://([^/?]*)([/?]?.*)", re.DOTALL)
_MOST_OPEN: Final = 16
"""File systems that a process keeps open, each with its connections."""

_CLIENT_ATTEMPTS: Final = 1
"""How often the client of S3 tries a request: `Attempts` tries again, and says so, which the client does not. Its own
attempts pass over a status of 429 and an answer that is too short, and it has a budget for them: with one failing
request in ten, reads by a client of five attempts ended in errors from about the 440th on."""

_GOOGLE_RETRIES: Final = timedelta(seconds=2)
"""How long the client of Google's store tries again; its own limit is minutes, in which nothing is heard of it."""

_S3: Final[dict[str, type]] = {
    "access_key": str,
    "secret_key": str,
    "session_token": str,
    "anonymous": bool,
    "region": str,
    "request_timeout": float,
    "connect_timeout": float,
    "scheme": str,
    "endpoint_override": str,
    "role_arn": str,
    "session_name": str,
    "external_id": str,
    "proxy_options": str,
    "force_virtual_addressing": bool,
    "tls_ca_file_path": str,
}
_GCS: Final[dict[str, type]] = {
    "anonymous": bool,
    "access_token": str,
    "target_service_account": str,
    "endpoint_override": str,
    "scheme": str,
    "project_id": str,
}
_AZURE: Final[dict[str, type]] = {
    "account_name": str,
    "account_key": str,
    "sas_token": str,
    "tenant_id": str,
    "client_id": str,
    "client_secret": str,
    "blob_storage_authority": str,
    "blob_storage_scheme": str,
    "dfs_storage_authority": str,
    "dfs_storage_scheme": str,
}
_HDFS: Final[dict[str, type]] = {"user": str, "kerb_ticket": str}
_SETTINGS: Final = {
    "s3": _S3,
    "gs": _GCS,
    "gcs": _GCS,
    "abfs": _AZURE,
    "abfss": _AZURE,
    "hdfs": _HDFS,
    "viewfs": _HDFS,
}
"""The settings of pyarrow's file systems, by the scheme of a URL: the names are those of its own arguments."""

_HADOOP: Final = ("hdfs", "viewfs")
_NO_LIBRARY: Final = re.compile("libjvm|libhdfs")
"""What pyarrow's errors have where Hadoop's library, or the Java that it needs, is not found."""

_HADOOP_WAYS: Final = (
    "Install Hadoop with libhdfs, and set HADOOP_HOME, JAVA_HOME and CLASSPATH (`hadoop classpath --glob`), or install "
    "the Python packages fsspec and hdfs-native"
)

_ALIASES: Final = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's names for the same stores."""


class OpenStorage(NamedTuple):
    """An open file system, and where in it a URL's paths begin."""

    file_system: FileSystem
    root: str  # A bucket or a container; empty or a slash where paths have no such beginning

    def path_of(self, relative: str) -> str:
        """Return a path as the file system takes it, by what follows the authority in the URL."""
        return f"{self.root}/{relative}".rstrip("/") if self.root != "/" else f"/{relative}"


@dataclass(frozen=True, slots=True)
class Storage:
    """A file system that is not this machine's, opened where it is needed: hashable, and picklable for tasks.

    * `scheme`, `authority`: Of the URL: ``s3`` and a bucket, or ``hdfs`` and a host with its port.
    """

    scheme: str
    authority: str
    settings: StorageSettings
    traffic: Traffic = field(default_factory=Traffic, compare=False, repr=False)
    """What this process asked of it through this object, and those copied from it."""

    def url_of(self, relative: str) -> str:
        """Return the URL of a path below the authority."""
        return f"{self.scheme}://{self.authority}/{relative}"

    def opened(self) -> OpenStorage:
        """Return the file system; a process opens it once."""
        return _opened(self, os.getpid())


class RemotePath(NamedTuple):
    """A file or directory in a storage."""

    storage: Storage
    relative: str  # what follows the authority in its URL, without slashes around it

    @property
    def url(self) -> str:
        """The URL, which holds no setting."""
        return self.storage.url_of(self.relative)


def parse_url(url: str, settings: StorageSettings) -> RemotePath | None:
    """Return what a URL stands for; None for the path of a local file."""
    parts = _URL.fullmatch(url)
    if parts is None or parts[1].lower() == "file":
        return None
    scheme, authority, path = parts[1].lower(), parts[2], parts[3]
    if ":" in authority.rpartition("@")[0] or _is_cut_password(authority, path):
        raise InvalidOptionError(
            f"the {scheme} URL has a password before its '@', which logs and reports would show: give it as a "
            f"setting, such as {SETTING_PREFIX}secret_key, or by the environment"
        )
    if "?" in path:
        raise InvalidOptionError(
            f"{scheme}://{authority}{path.split('?')[0]} is followed by a query: expected settings as options, such as "
            f"{SETTING_PREFIX}region"
        )
    return RemotePath(Storage(_ALIASES.get(scheme, scheme), authority, settings), re.sub("/+", "/", path).strip("/"))


def _is_cut_password(authority: str, path: str) -> bool:
    """Return whether a password has a slash or a question mark, so that what follows seems to be the path."""
    _, colon, port = authority.partition(":")
    return bool(colon) and not port.isdigit() and "@" in path


@lru_cache(maxsize=_MOST_OPEN)
def _opened(storage: Storage, _process: int) -> OpenStorage:
    """Open a file system; connections do not survive a fork, so that each process has its own."""
    shown = storage.url_of("")
    try:
        if storage.scheme in _HADOOP:
            return _of_hadoop(storage)
        return _of_pyarrow(storage) if storage.scheme in _SETTINGS else _of_fsspec(storage)
    except (InvalidOptionError, UnsupportedStoreError):
        raise
    except (OSError, ValueError, TypeError, NotImplementedError, pa.ArrowException) as error:
        raise StoreAccessError(
            f"{shown} can't be opened: {storage.settings.hidden_in(str(error))}. Check the URL, the settings "
            f"{SETTING_PREFIX}* and the environment's credentials"
        ) from None


def _of_pyarrow(storage: Storage) -> OpenStorage:
    from pyarrow import fs  # noqa: PLC0415 -- takes long to import, and most stores are local

    given: dict[str, Any] = storage.settings.arguments(_SETTINGS[storage.scheme])
    before, _, place = storage.authority.rpartition("@")
    is_google = storage.scheme in ("gs", "gcs")
    if not given:
        limit = f"?retry_limit_seconds={_GOOGLE_RETRIES.seconds}" if is_google else ""
        found, root = fs.FileSystem.from_uri(f"{storage.url_of('')}{limit}")  # takes the environment's endpoint, too
        return OpenStorage(found, root.rstrip("/") or "/")
    if storage.scheme == "s3":
        retries = fs.AwsStandardS3RetryStrategy(max_attempts=_CLIENT_ATTEMPTS)
        return OpenStorage(fs.S3FileSystem(retry_strategy=retries, **given), storage.authority)
    if is_google:
        return OpenStorage(fs.GcsFileSystem(retry_time_limit=_GOOGLE_RETRIES, **given), storage.authority)
    if storage.scheme in ("abfs", "abfss"):
        account = {"account_name": place.split(".")[0]} if before else {}
        return OpenStorage(fs.AzureFileSystem(**{**account, **given}), before or place)
    host, _, port = place.partition(":")
    return OpenStorage(fs.HadoopFileSystem(host or "default", int(port or 0), **{"user": before or None, **given}), "/")


def _of_hadoop(storage: Storage) -> OpenStorage:
    """Open HDFS by Hadoop's native library, or where that is not to be had by what fsspec knows for it."""
    try:
        return _of_pyarrow(storage)
    except OSError as error:
        if not _NO_LIBRARY.search(str(error)):
            raise
        reason = str(error).partition("\n")[0]
    if storage.settings or "@" in storage.authority:
        raise UnsupportedStoreError(
            f"{storage.url_of('')}: a user, and the settings {', '.join(_HDFS)}, are those of Hadoop's native library, "
            f"which can't be loaded here ({reason}). {_HADOOP_WAYS}, without them and with HADOOP_USER_NAME"
        )
    try:
        return _of_fsspec(storage)
    except (UnsupportedStoreError, OSError):
        raise UnsupportedStoreError(
            f"{storage.url_of('')}: Hadoop's native library can't be loaded here ({reason}), and neither can another "
            f"client of HDFS. {_HADOOP_WAYS}. Or copy the store to a local disk, and give that path"
        ) from None


def _of_fsspec(storage: Storage) -> OpenStorage:
    from pyarrow import fs  # noqa: PLC0415 -- as above

    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 -- need not be installed
    except ImportError:
        raise UnsupportedStoreError(
            f"{storage.url_of('')}: pyarrow does not know {storage.scheme}://. Install fsspec and its package for "
            f"{storage.scheme}, or copy the store to a local disk, and give that path"
        ) from None
    try:
        opened, root = url_to_fs(storage.url_of(""), **dict(storage.settings.values))
    except (ValueError, ImportError) as error:
        raise UnsupportedStoreError(
            f"{storage.url_of('')}: {storage.settings.hidden_in(str(error))}. Install the package that fsspec needs "
            f"for it, or copy the store to a local disk, and give that path"
        ) from None
    return OpenStorage(fs.PyFileSystem(fs.FSSpecHandler(opened)), root.rstrip("/") or "/")
