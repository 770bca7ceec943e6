# SPDX-License-Identifier: Apache-2.0
"""Taking the sound records out of a damaged log, and accounting for every other byte."""
