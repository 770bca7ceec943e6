# SPDX-License-Identifier: Apache-2.0
"""What a store remembers of itself: checkpoint, flags and counts."""
