# SPDX-License-Identifier: Apache-2.0
"""Everything derived from the log: consume queues, their extensions, the key index, and the requests that fill them."""
