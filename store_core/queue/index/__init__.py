# SPDX-License-Identifier: Apache-2.0
"""The key index: its files, hash slots and chains of entries."""
