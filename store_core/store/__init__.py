# SPDX-License-Identifier: Apache-2.0
"""The store itself, opened for reading."""
