# SPDX-License-Identifier: Apache-2.0
"""Views: tables of what is beside the log, such as queues, index files, offsets and a broker's configuration."""
