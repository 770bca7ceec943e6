# SPDX-License-Identifier: Apache-2.0
"""Answering consumers and operators from an open store."""
