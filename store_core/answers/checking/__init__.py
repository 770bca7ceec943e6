# SPDX-License-Identifier: Apache-2.0
"""What `store_core.answers.store_check` is made of: findings, their report, and checks of index and configuration."""
