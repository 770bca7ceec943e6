# SPDX-License-Identifier: Apache-2.0
"""Stores in storages other than S3: their emulators, or real ones of one node, which are fetched when asked for."""
