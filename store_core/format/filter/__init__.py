# SPDX-License-Identifier: Apache-2.0
"""Filters that select messages: by tags, and in the language SQL92."""
