# SPDX-License-Identifier: Apache-2.0
"""What `store_core.answers.store_export` is made of: the parts of an export and of its proof, and their reports."""
