# SPDX-License-Identifier: Apache-2.0
"""Deleting expired files, as a broker does."""
