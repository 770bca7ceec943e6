# SPDX-License-Identifier: Apache-2.0
"""The format of the store's bytes: records, units, properties; no files, no clock."""
