# SPDX-License-Identifier: Apache-2.0
"""The commands that rebuild consume queues and the key index."""
