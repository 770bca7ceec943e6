# SPDX-License-Identifier: Apache-2.0
"""What `store_core.answers.store_producers` is made of: what is gathered of messages that producers sent."""
