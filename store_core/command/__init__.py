# SPDX-License-Identifier: Apache-2.0
"""The command `commitlog`, and what all commands of this project share: exit codes and their errors."""
