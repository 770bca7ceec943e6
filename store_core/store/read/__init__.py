# SPDX-License-Identifier: Apache-2.0
"""Reading a log without opening its store."""
