# SPDX-License-Identifier: Apache-2.0
"""Calls that answer a question about a whole store or rebuild it, each as a job in parts (`store_core.store.parts`)."""
