# SPDX-License-Identifier: Apache-2.0
"""Staging records beside a log and committing them to it atomically."""
