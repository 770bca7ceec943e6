# SPDX-License-Identifier: Apache-2.0
"""Writing DataFrames to a store."""
