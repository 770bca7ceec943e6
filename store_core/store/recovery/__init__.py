# SPDX-License-Identifier: Apache-2.0
"""Opening a store after it was closed or after a crash."""
