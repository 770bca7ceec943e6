# SPDX-License-Identifier: Apache-2.0
"""What answers stand on that read a few columns of all messages: parts of the log, and tables of groups that merge."""
