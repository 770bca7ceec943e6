# SPDX-License-Identifier: Apache-2.0
"""Reading messages from a log without opening its store."""
