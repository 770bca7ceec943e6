# SPDX-License-Identifier: Apache-2.0
"""What the command prints and writes: rows as tables, JSON lines, CSV, Arrow and Parquet."""
