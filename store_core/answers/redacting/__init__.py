# SPDX-License-Identifier: Apache-2.0
"""What `store_core.answers.store_redact` is made of: the parts of a redaction, and its report."""
