# SPDX-License-Identifier: Apache-2.0
"""Comparing the logs of two stores, byte by byte or record by record."""
