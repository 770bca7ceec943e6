# SPDX-License-Identifier: Apache-2.0
"""The store: opening, putting, reading, recovering and rebuilding it."""
