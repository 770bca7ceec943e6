# SPDX-License-Identifier: Apache-2.0
"""Where the bytes live: paths, segment files, mappings."""
