# SPDX-License-Identifier: Apache-2.0
"""Exports into tables of Delta and Iceberg, by a Spark that both are built for."""
