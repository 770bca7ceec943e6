# SPDX-License-Identifier: Apache-2.0
"""Load: many writers and readers for long, large stores, and memory, handles and mappings that stay flat."""
