# SPDX-License-Identifier: Apache-2.0
"""Look-ups: which records a read needs, by queues and positions, proven to give the rows of a scan."""
