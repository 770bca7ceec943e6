# SPDX-License-Identifier: Apache-2.0
"""One record, one message: the readable definitions of reading and writing."""
