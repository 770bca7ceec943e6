# SPDX-License-Identifier: Apache-2.0
"""What became of messages: the answers `transactions`, `delays`, `trace`, `deadletters`, and what they stand on."""
