# SPDX-License-Identifier: Apache-2.0
"""Store configuration, and sizes inferred from the store's files."""
