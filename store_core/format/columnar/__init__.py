# SPDX-License-Identifier: Apache-2.0
"""Many records at once: the vectorised twins of the definitions in `store_core.format.record`."""
