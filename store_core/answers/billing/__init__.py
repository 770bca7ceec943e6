# SPDX-License-Identifier: Apache-2.0
"""What `store_core.answers.store_bill` is made of: totals of messages, and their report."""
