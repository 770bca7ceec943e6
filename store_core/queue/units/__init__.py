# SPDX-License-Identifier: Apache-2.0
"""Units on their way into queues."""
