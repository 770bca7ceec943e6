# SPDX-License-Identifier: Apache-2.0
"""Reading a store as a stream."""
