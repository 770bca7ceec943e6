# SPDX-License-Identifier: Apache-2.0
"""What the answer `lag` is made of: groups and their queues, the messages not consumed, and the report."""
