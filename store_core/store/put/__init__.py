# SPDX-License-Identifier: Apache-2.0
"""Putting messages: checks, preparation, and appending to the commit log."""
