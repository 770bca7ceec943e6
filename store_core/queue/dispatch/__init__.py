# SPDX-License-Identifier: Apache-2.0
"""From records of the log to what queues and index need of them."""
