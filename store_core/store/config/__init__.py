# SPDX-License-Identifier: Apache-2.0
"""How a store is configured, and what its files say of it."""
