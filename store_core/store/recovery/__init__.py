# SPDX-License-Identifier: Apache-2.0
"""Recovering a store on opening, after a clean exit or a crash."""
