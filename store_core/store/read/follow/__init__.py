# SPDX-License-Identifier: Apache-2.0
"""Reading of a log that grows: positions that prove themselves, batches, and what was lost in between."""
