# SPDX-License-Identifier: Apache-2.0
"""Reading past damage: where a chain of records breaks, resumes and ends."""
