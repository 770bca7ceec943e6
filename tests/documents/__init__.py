# SPDX-License-Identifier: Apache-2.0
"""Tests of the documents: their blocks are executed, their links checked, and the site is built."""
