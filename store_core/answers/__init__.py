# SPDX-License-Identifier: Apache-2.0
"""What can be asked of a whole store, or made of it, in one call; each is a job in parts (`store_core.store.parts`)."""
