# SPDX-License-Identifier: Apache-2.0
"""What `store_core.answers.store_repair` is made of: what is to be done, the plan, and doing it."""
