# SPDX-License-Identifier: Apache-2.0
"""A small store to try things on: four hours of a web shop, as RocketMQ 5.3.3 wrote them.

How it was made is told in ``notebooks/store`` of the project.
"""

from __future__ import annotations

import atexit
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import os

__all__ = ["orders_store"]

_ARCHIVE: Final = Path(__file__).with_name("orders.tar.xz")


def orders_store(directory: str | os.PathLike[str] | None = None) -> Path:
    """Unpack the sample store, and give its root; each call gives a fresh copy, to be damaged at will.

    Parameters
    ----------
    directory : path, optional
        Where to; the store is then in ``orders/store`` below. By default a temporary directory, which is deleted when
        the process ends.

    Returns
    -------
    pathlib.Path
        The store root. Beside it is ``broker.conf``, with the sizes of its files.

    Examples
    --------
    >>> store = orders_store()
    >>> sorted(path.name for path in store.iterdir())
    ['checkpoint', 'commitlog', 'config', 'consumequeue', 'index']
    """
    if directory is None:
        directory = tempfile.mkdtemp(prefix="commitlog-sample-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
    with tarfile.open(_ARCHIVE) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(directory)  # noqa: S202 -- our own archive; the filter is there from Python 3.11.4
    return Path(directory, "orders", "store")
