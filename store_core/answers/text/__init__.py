# SPDX-License-Identifier: Apache-2.0
"""Rows and text from stores as lines for people, in reports and in the output of commands."""
