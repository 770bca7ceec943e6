# SPDX-License-Identifier: Apache-2.0
"""The releases of RocketMQ, and what each does: one table of named features."""
