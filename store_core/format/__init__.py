# SPDX-License-Identifier: Apache-2.0
"""What the bytes are: records, units, properties; no files, no clock."""
