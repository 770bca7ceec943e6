# SPDX-License-Identifier: Apache-2.0
"""What the documents say is executed: their blocks, their links, and the site that is made of them."""
