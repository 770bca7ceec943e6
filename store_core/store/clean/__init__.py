# SPDX-License-Identifier: Apache-2.0
"""Deletion of what is old, as a broker does it."""
