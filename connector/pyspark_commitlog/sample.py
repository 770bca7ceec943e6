# SPDX-License-Identifier: Apache-2.0
"""A small sample store: four hours of a web shop, written by RocketMQ 5.3.3.

``notebooks/store`` of the project describes how it was made.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from store_core.errors import StoreAccessError

_ARCHIVE: Final = Path(__file__).with_name("orders.tar.xz")


def orders_store(directory: str | os.PathLike[str] | None = None) -> Path:
    """Unpack the sample store and return its root; each call makes a fresh copy, to be changed or damaged at will.

    Parameters
    ----------
    directory : path, optional
        Where to unpack; the store is then in ``orders/store`` below. By default a temporary directory, which is deleted
        when the process ends.

    Returns
    -------
    pathlib.Path
        The store root. Next to it is ``broker.conf``, with the sizes of its files.

    Raises
    ------
    StoreAccessError
        If the directory is a file, or can't be made or written.

    Examples
    --------
    >>> store = orders_store()
    >>> sorted(path.name for path in store.iterdir())
    ['checkpoint', 'commitlog', 'config', 'consumequeue', 'index']
    """
    if directory is None:
        directory = tempfile.mkdtemp(prefix="commitlog-sample-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
    try:
        with tarfile.open(_ARCHIVE) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(directory)  # noqa: S202 -- our own archive; the filter is there from Python 3.11.4
    except OSError as error:
        at = "" if error.filename is None else f" at {error.filename}"
        raise StoreAccessError(
            f"{os.fspath(directory)}: expected a directory that can be made or written, for the sample store, found "
            f"{error.strerror or error}{at}. Give another directory, or none for a temporary one"
        ) from error
    return Path(directory, "orders", "store")
