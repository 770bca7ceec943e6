# SPDX-License-Identifier: Apache-2.0
"""The jobs that rebuild consume queues and key index."""
