# SPDX-License-Identifier: Apache-2.0
"""Messages as files of a data lake: what is written, in which order, and the ledger that says what is there."""
