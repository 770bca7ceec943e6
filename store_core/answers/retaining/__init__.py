# SPDX-License-Identifier: Apache-2.0
"""What the answer `retention` is made of: a disk that fills, files that a broker would delete, and the report."""
