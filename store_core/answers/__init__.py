# SPDX-License-Identifier: Apache-2.0
"""Questions about a whole store, and rebuilds of it, in one call; each is a job in parts (`store_core.store.parts`)."""
