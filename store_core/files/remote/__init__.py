# SPDX-License-Identifier: Apache-2.0
"""Files that are not on a disk of this machine: object stores and other file systems, by pyarrow or fsspec."""
