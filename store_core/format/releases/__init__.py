# SPDX-License-Identifier: Apache-2.0
"""The releases of RocketMQ and their behaviour, in one table of named features."""
