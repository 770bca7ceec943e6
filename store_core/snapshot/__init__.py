# SPDX-License-Identifier: Apache-2.0
"""A store's files, read without owning the store: nothing is written, locked or trusted."""
