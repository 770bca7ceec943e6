# SPDX-License-Identifier: Apache-2.0
"""Reports as HTML: one file with style and plots inside, that refers to nothing elsewhere and runs no script."""
