# SPDX-License-Identifier: Apache-2.0
"""What the commands share: errors, exit codes, sessions, output, and the sources of messages."""
